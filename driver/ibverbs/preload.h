/* What the files of libweft-preload.so share. It stands between a program and the C library, so what it defines under a
 * name of the C library's is what every library of the program calls. */
#pragma once
#include "weft.h"

#include <dlfcn.h>
#include <sys/types.h>

/* The function that would have been called. */
#define NEXT(name) ({ \
    static __typeof__(&name) next; \
    if (!LOAD(next)) STORE(next, (__typeof__(&name))dlsym(RTLD_NEXT, #name)); \
    next; })

/* rdma_cm.c: the device of connection management; files that were opened there are channels of events. */
#define CM_DEVICE "/dev/infiniband/rdma_cm"
struct cm_file {
    uint32_t handle; /* the daemon's; 0: no such file */
    uint64_t inode;
};
int cm_open(int flags);
int cm_is(int file);
void cm_forget(int file);
struct cm_file *cm_file(int file);
struct context *cm_daemon(void);
uint32_t cm_own_ip(void);
int cm_next_event(int file);
void cm_drop_tokens(int file, uint32_t count);

/* rdma_cm_commands.c: what a program writes into such a file. */
ssize_t cm_write(int file, const void *data, size_t size);
