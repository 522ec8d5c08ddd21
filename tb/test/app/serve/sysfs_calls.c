/* Reads a file of the device by every function of the C library that takes a path: a line "NAME yes" or "NAME no" each. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband"
#define DEVICE CLASS "/weft0"
#define PATH DEVICE "/node_type"

/* Functions that only compiled programs call. */
int __open_2(const char *, int), __open64_2(const char *, int);
int __openat_2(int, const char *, int), __openat64_2(int, const char *, int);
int __xstat(int, const char *, struct stat *), __lxstat(int, const char *, struct stat *);
int __xstat64(int, const char *, struct stat64 *), __lxstat64(int, const char *, struct stat64 *);
int __fxstatat(int, int, const char *, struct stat *, int), __fxstatat64(int, int, const char *, struct stat64 *, int);
ssize_t __readlink_chk(const char *, char *, size_t, size_t), __readlinkat_chk(int, const char *, char *, size_t, size_t);
char *__realpath_chk(const char *, char *, size_t);

static void print(const char *name, int yes) { printf("%s %s\n", name, yes ? "yes" : "no"); }
#define CALL(name, test) print(name, test)

static int right(const char *text, ssize_t n) { return n == 6 && !memcmp(text, "1: CA\n", 6); }

static int reads(int file) {
    char text[64];
    ssize_t n = file < 0 ? -1 : read(file, text, sizeof text);
    close(file);
    return right(text, n);
}

static int streams(FILE *file) {
    char text[64];
    ssize_t n = file ? (ssize_t)fread(text, 1, sizeof text, file) : -1;
    if (file) fclose(file);
    return right(text, n);
}

static int same(char *path, const char *as) {
    int equal = path && !strcmp(path, as);
    free(path);
    return equal;
}

static int lists(DIR *folder, const char *name) {
    int found = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) found |= !strcmp(entry->d_name, name);
    if (folder) closedir(folder);
    return found;
}

static int globs(const char *pattern) {
    glob_t found = { 0 };
    int yes = !glob(pattern, 0, NULL, &found) && found.gl_pathc == 1 && !strcmp(found.gl_pathv[0], PATH);
    globfree(&found);
    return yes;
}

static int globs64(const char *pattern) {
    glob64_t found = { 0 };
    int yes = !glob64(pattern, 0, NULL, &found) && found.gl_pathc == 1 && !strcmp(found.gl_pathv[0], PATH);
    globfree64(&found);
    return yes;
}

static int is_no_link(ssize_t n) { return n < 0 && errno == EINVAL; }

int main(void) {
    struct stat s;
    struct stat64 s64;
    struct statx sx;
    struct dirent **names;
    struct dirent64 **names64;
    char text[PATH_MAX];
    int root = open("/", O_RDONLY | O_DIRECTORY), classes = open("/sys/class", O_RDONLY | O_DIRECTORY);
    int device = open(DEVICE, O_RDONLY | O_DIRECTORY);

    CALL("open", reads(open(PATH, O_RDONLY)));
    CALL("open64", reads(open64(PATH, O_RDONLY)));
    CALL("openat", reads(openat(AT_FDCWD, PATH, O_RDONLY)));
    CALL("openat64", reads(openat64(root, PATH, O_RDONLY)));
    CALL("openat of root", reads(openat(root, PATH + 1, O_RDONLY)));
    CALL("openat of classes", reads(openat(classes, "infiniband/weft0/node_type", O_RDONLY)));
    CALL("openat of device", reads(openat(device, "node_type", O_RDONLY)));
    CALL("open with slashes", reads(open("//sys//class/infiniband//weft0/node_type", O_RDONLY)));
    CALL("__open_2", reads(__open_2(PATH, O_RDONLY)));
    CALL("__open64_2", reads(__open64_2(PATH, O_RDONLY)));
    CALL("__openat_2", reads(__openat_2(root, PATH + 1, O_RDONLY)));
    CALL("__openat64_2", reads(__openat64_2(root, PATH, O_RDONLY)));
    CALL("fopen", streams(fopen(PATH, "r")));
    CALL("fopen64", streams(fopen64(PATH, "r")));
    CALL("access", !access(PATH, R_OK));
    CALL("faccessat", !faccessat(classes, "infiniband/weft0", F_OK, 0));
    CALL("stat", !stat(PATH, &s) && s.st_size == 6);
    CALL("stat64", !stat64(PATH, &s64));
    CALL("lstat", !lstat(PATH, &s));
    CALL("lstat64", !lstat64(PATH, &s64));
    CALL("fstatat", !fstatat(root, PATH + 1, &s, 0));
    CALL("fstatat64", !fstatat64(root, PATH, &s64, AT_SYMLINK_NOFOLLOW));
    CALL("statx", !statx(root, PATH + 1, 0, STATX_BASIC_STATS, &sx));
    CALL("__xstat", !__xstat(1, PATH, &s));
    CALL("__xstat64", !__xstat64(1, PATH, &s64));
    CALL("__lxstat", !__lxstat(1, PATH, &s));
    CALL("__lxstat64", !__lxstat64(1, PATH, &s64));
    CALL("__fxstatat", !__fxstatat(1, root, PATH, &s, 0));
    CALL("__fxstatat64", !__fxstatat64(1, root, PATH + 1, &s64, 0));
    CALL("readlink", is_no_link(readlink(DEVICE, text, sizeof text)));
    CALL("readlinkat", is_no_link(readlinkat(classes, "infiniband/weft0", text, sizeof text)));
    CALL("__readlink_chk", is_no_link(__readlink_chk(DEVICE, text, sizeof text, sizeof text)));
    CALL("__readlinkat_chk", is_no_link(__readlinkat_chk(root, DEVICE, text, sizeof text, sizeof text)));
    CALL("realpath", same(realpath(DEVICE "/ports/../device", NULL), DEVICE "/device"));
    CALL("canonicalize_file_name", same(canonicalize_file_name(PATH), PATH));
    CALL("__realpath_chk", __realpath_chk(PATH, text, sizeof text) == text && !strcmp(text, PATH));
    CALL("opendir", lists(opendir(CLASS), "weft0"));
    CALL("scandir", scandir(CLASS, &names, NULL, alphasort) == 3 && !strcmp(names[2]->d_name, "weft0"));
    CALL("scandir64", scandir64(CLASS, &names64, NULL, alphasort64) == 3 && !strcmp(names64[2]->d_name, "weft0"));
    CALL("glob", globs(CLASS "/*/node_ty*"));
    CALL("glob64", globs64(CLASS "/*/node_type"));
    CALL("glob without pattern", globs(PATH));
    CALL("chdir", !chdir(DEVICE) && reads(open("node_type", O_RDONLY)));
    return 0;
}
