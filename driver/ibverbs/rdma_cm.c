/* The `rdma_cm` device for stock librdmacm: a file for each event channel, on which commands are written. The file is
 * one end of a socket pair that holds a byte for each event of the daemon, so that it can be polled. */
#include "preload.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MOST 65536

static struct cm_file files[FILES_MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *context; /* child processes can use it, like an open file of the kernel */
static uint64_t socket_inode;

/* Connect to the daemon, with a context in memory that child processes share; return NULL on failure. */
static struct context *hello(void) {
    struct context *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct weft_welcome welcome;
    int given[4];
    if (c == MAP_FAILED) return NULL;
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST); /* one of them may be killed during a call */
    pthread_mutex_init(&c->lock, &attr);
    c->socket = weft_connect(weft_path());
    if (c->socket < 0 || weft_call(c, (struct call){ .opcode = WEFT_HELLO, .answer = &welcome,
            .answer_size = sizeof welcome, .files = given, .count = 4 })) {
        if (c->socket >= 0) close(c->socket);
        munmap(c, sizeof *c);
        return NULL;
    }
    for (int i = 0; i < 4; i++) close(given[i]); /* for rings and their events */
    memcpy(c->gid, welcome.gid, sizeof c->gid);
    return c;
}

static uint64_t inode_of(int file) {
    struct stat found;
    return fstatat(file, "", &found, AT_EMPTY_PATH) ? 0 : found.st_ino ^ (uint64_t)found.st_dev << 48;
}

/* Return the connection that all channels of this process use, or NULL. A new one replaces a socket that the program
 * has closed, as daemons close all files. */
struct context *cm_daemon(void) {
    pthread_mutex_lock(&lock);
    if (!context || inode_of(context->socket) != socket_inode) {
        context = hello();
        socket_inode = context ? inode_of(context->socket) : 0;
    }
    struct context *present = context;
    pthread_mutex_unlock(&lock);
    return present;
}

/* Return the IPv4 address of the card, from the end of its GID; 0 if there is none. */
uint32_t cm_own_ip(void) {
    const struct context *c = cm_daemon();
    uint32_t ip = 0;
    if (c) memcpy(&ip, c->gid + 12, sizeof ip);
    return be32toh(ip);
}

/* Create a channel and return its file, or -1. */
int cm_open(int flags) {
    struct weft_handle answer;
    int file;
    struct context *c = cm_daemon();
    if (!c) return -1;
    int error = weft_call(c, (struct call){ .opcode = WEFT_CREATE_CM_CHANNEL, .answer = &answer,
                                            .answer_size = sizeof answer, .files = &file, .count = 1 });
    if (!error && file >= FILES_MOST) {
        weft_destroy(c, WEFT_KIND_CM_CHANNEL, answer.handle);
        close(file);
        error = EMFILE;
    }
    if (error) {
        errno = error;
        return -1;
    }
    if (!(flags & O_CLOEXEC)) fcntl(file, F_SETFD, 0);
    if (flags & O_NONBLOCK) fcntl(file, F_SETFL, O_NONBLOCK);
    files[file].inode = inode_of(file);
    STORE(files[file].handle, answer.handle);
    return file;
}

/* Return true if a file is a channel. The inode reveals a file that was closed without this library, and whose number
 * was used again. */
int cm_is(int file) {
    if (file < 0 || file >= FILES_MOST || !LOAD(files[file].handle)) return 0;
    if (files[file].inode == inode_of(file)) return 1;
    STORE(files[file].handle, 0);
    return 0;
}

struct cm_file *cm_file(int file) { return &files[file]; }

/* Destroy a channel whose file is about to be closed. */
void cm_forget(int file) {
    uint32_t handle = files[file].handle;
    STORE(files[file].handle, 0);
    weft_destroy(context, WEFT_KIND_CM_CHANNEL, handle);
}

/* Wait for an event, unless the file is non-blocking; return 0 or an error number. */
int cm_next_event(int file) {
    char token;
    ssize_t n = recv(file, &token, sizeof token, 0);
    return n < 0 ? errno : n ? 0 : EIO;
}

/* Remove the tokens of `count` events that left the channel without having been taken. */
void cm_drop_tokens(int file, uint32_t count) {
    char token;
    while (count-- && recv(file, &token, sizeof token, MSG_DONTWAIT) == sizeof token);
}
