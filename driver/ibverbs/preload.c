/* View of the machine for a program: the RDMA devices of the kernel are hidden, and the one of its host is visible. */
#include "preload.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERBS_DEVICE "/dev/infiniband/uverbs0"

PUBLIC int socket(int domain, int type, int protocol) {
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA) { /* RDMA devices of the kernel, if it has any */
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return NEXT(socket)(domain, type, protocol);
}

#define OPEN(name) \
    PUBLIC int name(const char *path, int flags, ...) { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments); \
        if (!strcmp(path, CM_DEVICE)) { \
            int file = cm_open(flags); \
            if (file >= 0) return file; \
        } \
        char view[VIEW_BYTES]; \
        return NEXT(name)(sysfs_opened(AT_FDCWD, path, view), flags, mode); \
    }
OPEN(open)
OPEN(open64)

/* Programs that look for device files before they use them find those of the card. */
static int is_device(const char *path) {
    return (!strcmp(path, CM_DEVICE) || !strcmp(path, VERBS_DEVICE)) && cm_daemon();
}

#define STAT(name, type) \
    PUBLIC int name(const char *path, struct type *found) { \
        char view[VIEW_BYTES]; \
        return NEXT(name)(is_device(path) ? "/dev/null" : sysfs_view(AT_FDCWD, path, view), found); \
    }
STAT(stat, stat)
STAT(stat64, stat64)

PUBLIC int access(const char *path, int mode) {
    char view[VIEW_BYTES];
    return is_device(path) && !(mode & X_OK) ? 0 : NEXT(access)(sysfs_view(AT_FDCWD, path, view), mode);
}

/* librdmacm requires a character device. */
#define FSTAT(name, type) \
    PUBLIC int name(int file, struct type *found) { \
        int failed = NEXT(name)(file, found); \
        if (!failed && cm_is(file)) found->st_mode = (found->st_mode & ~(mode_t)S_IFMT) | S_IFCHR; \
        return failed; \
    }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)

PUBLIC ssize_t write(int file, const void *data, size_t size) {
    return cm_is(file) ? cm_write(file, data, size) : NEXT(write)(file, data, size);
}

PUBLIC int close(int file) {
    if (cm_is(file)) cm_forget(file);
    return NEXT(close)(file);
}
