/* Declarations of libweft-preload.so, which is loaded before the C library: a function with a name of the C library
 * replaces it for the program and all its libraries. */
#pragma once
#include "weft.h"

#include <dlfcn.h>
#include <sys/types.h>

/* Next definition of a function, which this library replaces. */
#define NEXT(name) ({ \
    static __typeof__(&name) next; \
    if (!LOAD(next)) STORE(next, (__typeof__(&name))dlsym(RTLD_NEXT, #name)); \
    next; })

/* rdma_cm.c: the device of connection management; files that were opened there are event channels. */
#define CM_DEVICE "/dev/infiniband/rdma_cm"
struct cm_file {
    uint32_t handle; /* of the daemon; 0: no such file */
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

/* sysfs.c: path that a function of the C library must use instead of `path`, which is below a folder's descriptor if it
 * is relative. `view` has VIEW_BYTES, few because stacks of signal handlers are small; longer paths stay as they are.
 * sysfs_opened() is for a file that is about to be opened. */
#define VIEW_BYTES 512
const char *sysfs_view(int folder, const char *path, char *view);
const char *sysfs_opened(int folder, const char *path, char *view);

/* rdma_cm_commands.c: commands that a program writes into such a file. */
ssize_t cm_write(int file, const void *data, size_t size);
