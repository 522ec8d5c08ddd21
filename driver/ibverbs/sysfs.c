/* View of /sys for a program: the classes of RDMA devices are those in the daemon's folder NAME.sys, with the files of
 * driver/serve/sysfs.py. Every function of the C library that takes a path gets the path there instead. The values of
 * counters are up to date when a file is opened. */
#include "preload.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLASSES "/sys/class/"

/* Return the folder, or NULL. */
static const char *tree(void) {
    static char whole[PATH_MAX]; /* no memory of the heap: a handler of a signal may open a file */
    static const char *found;
    if (LOAD(found)) return found;
    const char *socket = weft_path();
    size_t length = strlen(socket);
    char path[VIEW_BYTES], resolved[PATH_MAX];
    if (length < 5 || length >= sizeof path || strcmp(socket + length - 5, ".sock")) return NULL;
    snprintf(path, sizeof path, "%.*s.sys", (int)length - 5, socket);
    if (!NEXT(realpath)(path, resolved)) return NULL;
    memcpy(whole, resolved, sizeof whole); /* the same in each thread */
    STORE(found, whole);
    return found;
}

/* Return the part of an absolute path from its class on, if that is one of RDMA devices; else NULL. */
static const char *in_class(const char *path) {
    static const char *const names[] = { "infiniband", "infiniband_mad", "infiniband_verbs" };
    for (const char *p = CLASSES; *p; p++) {
        if (*path++ != *p) return NULL;
        while (*p == '/' && *path == '/') path++;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (!strncmp(path, names[i], length) && (!path[length] || path[length] == '/')) return path;
    }
    return NULL;
}

/* Set `whole` to the absolute path of a relative one; return false if it has none. */
static int absolute(int folder, const char *path, char *whole) {
    char link[64] = "/proc/self/cwd";
    if (folder != AT_FDCWD) snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t n = NEXT(readlink)(link, whole, VIEW_BYTES - 1);
    return n > 0 && snprintf(whole + n, VIEW_BYTES - (size_t)n, "/%s", path) < VIEW_BYTES - n;
}

const char *sysfs_view(int folder, const char *path, char *view) {
    char whole[VIEW_BYTES];
    const char *part = NULL;
    if (path && *path == '/') part = in_class(path);
    else if (path && strstr(path, "infiniband") && absolute(folder, path, whole)) part = in_class(whole);
    if (!part || !tree() || !cm_daemon()) return path;
    return snprintf(view, VIEW_BYTES, "%s/class/%s", tree(), part) < VIEW_BYTES ? view : path;
}

const char *sysfs_opened(int folder, const char *path, char *view) {
    const char *seen = sysfs_view(folder, path, view), *full = seen, *root;
    char whole[VIEW_BYTES];
    if (!seen || !*seen || (*seen == '/' && !strstr(seen, "counters/")) || !(root = tree())) return seen;
    if (*seen != '/') full = absolute(folder, seen, whole) ? whole : "";
    if (!strncmp(full, root, strlen(root)) && strstr(full, "counters/")) {
        struct context *c = cm_daemon();
        if (c) weft_call(c, (struct call){ .opcode = WEFT_UPDATE_COUNTERS });
    }
    return seen;
}

/* ------------------------------------------------------------------------------------- files */

#define OPENAT(name) \
    PUBLIC int name(int folder, const char *path, int flags, ...) { \
        char view[VIEW_BYTES]; \
        va_list arguments; \
        va_start(arguments, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments); \
        return NEXT(name)(folder, sysfs_opened(folder, path, view), flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
    PUBLIC FILE *name(const char *restrict path, const char *restrict mode) { \
        char view[VIEW_BYTES]; \
        return NEXT(name)(sysfs_opened(AT_FDCWD, path, view), mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

PUBLIC int chdir(const char *path) {
    char view[VIEW_BYTES];
    return NEXT(chdir)(sysfs_view(AT_FDCWD, path, view));
}

/* --------------------------------------------------------------------------------- attributes */

#define LSTAT(name, type) \
    PUBLIC int name(const char *restrict path, struct type *restrict found) { \
        char view[VIEW_BYTES]; \
        return NEXT(name)(sysfs_view(AT_FDCWD, path, view), found); \
    }
LSTAT(lstat, stat)
LSTAT(lstat64, stat64)

#define FSTATAT(name, type) \
    PUBLIC int name(int folder, const char *restrict path, struct type *restrict found, int flags) { \
        char view[VIEW_BYTES]; \
        return NEXT(name)(folder, sysfs_view(folder, path, view), found, flags); \
    }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

PUBLIC int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    char view[VIEW_BYTES];
    return NEXT(statx)(folder, sysfs_view(folder, path, view), flags, mask, found);
}

PUBLIC int faccessat(int folder, const char *path, int mode, int flags) {
    char view[VIEW_BYTES];
    return NEXT(faccessat)(folder, sysfs_view(folder, path, view), mode, flags);
}

/* Of programs that were linked before glibc 2.33. */
#define XSTAT(name, type) \
    PUBLIC int __x##name(int version, const char *path, struct type *found) { \
        return (void)version, name(path, found); \
    } \
    PUBLIC int __lx##name(int version, const char *path, struct type *found) { \
        return (void)version, l##name(path, found); \
    }
XSTAT(stat, stat)
XSTAT(stat64, stat64)

#define FXSTATAT(name, type) \
    PUBLIC int __fx##name(int version, int folder, const char *path, struct type *found, int flags) { \
        return (void)version, f##name(folder, path, found, flags); \
    }
FXSTATAT(statat, stat)
FXSTATAT(statat64, stat64)

/* -------------------------------------------------------------------------------------- links */

PUBLIC ssize_t readlink(const char *restrict path, char *restrict to, size_t size) {
    char view[VIEW_BYTES];
    return NEXT(readlink)(sysfs_view(AT_FDCWD, path, view), to, size);
}

PUBLIC ssize_t readlinkat(int folder, const char *restrict path, char *restrict to, size_t size) {
    char view[VIEW_BYTES];
    return NEXT(readlinkat)(folder, sysfs_view(folder, path, view), to, size);
}

/* The program must not see the daemon's folder. */
PUBLIC char *realpath(const char *restrict path, char *restrict to) {
    char view[VIEW_BYTES], *found = NEXT(realpath)(sysfs_view(AT_FDCWD, path, view), to);
    const char *root = found ? tree() : NULL;
    size_t length = root ? strlen(root) : 0;
    if (root && !strncmp(found, root, length) && found[length] == '/') {
        memcpy(found, "/sys", 4);
        memmove(found + 4, found + length, strlen(found + length) + 1);
    }
    return found;
}

PUBLIC char *canonicalize_file_name(const char *path) { return realpath(path, NULL); }

/* ------------------------------------------------------------------------------------ folders */

PUBLIC DIR *opendir(const char *path) {
    char view[VIEW_BYTES];
    return NEXT(opendir)(sysfs_view(AT_FDCWD, path, view));
}

#define SCANDIR(name, type) \
    PUBLIC int name(const char *restrict path, struct type ***restrict found, int (*wanted)(const struct type *), \
                    int (*order)(const struct type **, const struct type **)) { \
        char view[VIEW_BYTES]; \
        return NEXT(name)(sysfs_view(AT_FDCWD, path, view), found, wanted, order); \
    }
SCANDIR(scandir, dirent)
SCANDIR(scandir64, dirent64)

static void *open_folder(const char *path) { return opendir(path); }

static void close_folder(void *folder) { closedir(folder); }

/* Patterns below /sys are matched by the functions above, so that results have the program's names. */
#define GLOB(name, type, entry, read, stat, lstat) \
    static struct entry *next_of_##name(void *folder) { return read(folder); } \
    PUBLIC int name(const char *restrict pattern, int flags, int (*failed)(const char *, int), type *restrict found) { \
        if (!strncmp(pattern, "/sys/", 5) && !(flags & GLOB_ALTDIRFUNC) && tree()) { \
            flags |= GLOB_ALTDIRFUNC; \
            found->gl_opendir = open_folder; \
            found->gl_readdir = next_of_##name; \
            found->gl_closedir = close_folder; \
            found->gl_stat = stat; \
            found->gl_lstat = lstat; \
        } \
        return NEXT(name)(pattern, flags, failed, found); \
    }
GLOB(glob, glob_t, dirent, readdir, stat, lstat)
GLOB(glob64, glob64_t, dirent64, readdir64, stat64, lstat64)

/* --------------------------------------------- programs that were compiled with _FORTIFY_SOURCE */

PUBLIC int __open_2(const char *path, int flags) { return open(path, flags); }
PUBLIC int __open64_2(const char *path, int flags) { return open64(path, flags); }
PUBLIC int __openat_2(int folder, const char *path, int flags) { return openat(folder, path, flags); }
PUBLIC int __openat64_2(int folder, const char *path, int flags) { return openat64(folder, path, flags); }

#define CHECKED(size, room) if (size > room) abort();
PUBLIC ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room) {
    CHECKED(size, room)
    return readlink(path, to, size);
}
PUBLIC ssize_t __readlinkat_chk(int folder, const char *path, char *to, size_t size, size_t room) {
    CHECKED(size, room)
    return readlinkat(folder, path, to, size);
}
PUBLIC char *__realpath_chk(const char *path, char *to, size_t room) {
    CHECKED(PATH_MAX, room)
    return realpath(path, to);
}
