/* What the files of libweft-preload.so share. It stands between a program and the C library, so what it defines under a
 * name of the C library's is what every library of the program calls. */
#pragma once
#include "weft.h"

#include <dlfcn.h>

/* The function that would have been called. */
#define NEXT(name) ({ \
    static __typeof__(&name) next; \
    if (!LOAD(next)) STORE(next, (__typeof__(&name))dlsym(RTLD_NEXT, #name)); \
    next; })
