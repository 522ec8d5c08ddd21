/* Calls to the daemon: a message and its answer, with the files that accompany them. */
#include "weft.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET "/run/weft/host.sock"

void weft_log(const char *format, ...) {
    if (!getenv("WEFT_LOG")) return;
    va_list arguments;
    va_start(arguments, format);
    fputs("weft: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
}

const char *weft_path(void) {
    const char *named = getenv("WEFT_SOCKET");
    return named ? named : SOCKET;
}

/* Return a socket that is connected to the daemon, or -1. */
int weft_connect(const char *path) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (s >= 0 && connect(s, (struct sockaddr *)&address, sizeof address)) {
        int error = errno;
        close(s);
        errno = error;
        return -1;
    }
    return s;
}

static int tell(int socket, const struct call *call) {
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct weft_request head = { .version = WEFT_VERSION, .opcode = call->opcode };
    struct iovec parts[] = { { &head, sizeof head }, { (void *)call->body, call->size },
                             { (void *)call->tail, call->tail_size } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };
    if (call->file) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), call->file, sizeof(int));
    }
    ssize_t n;
    do n = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? errno : 0;
}

/* Receive an answer; return 0 or an error number, with the daemon's sentence. */
static int hear(int socket, struct call *call, char sentence[WEFT_SENTENCE_BYTES_MAX + 1]) {
    char control[CMSG_SPACE(WEFT_FILES_MAX * sizeof(int))];
    struct weft_answer head;
    uint8_t body[512];
    struct iovec parts[] = { { &head, sizeof head }, { body, sizeof body } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2, .msg_control = control,
                              .msg_controllen = sizeof control };
    ssize_t n;
    do n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0) message.msg_controllen = 0;
    if (n < (ssize_t)sizeof head) head.status = EIO; /* the daemon is gone */
    n = n < (ssize_t)sizeof head ? 0 : n - (ssize_t)sizeof head;
    unsigned got = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        for (size_t at = 0; c->cmsg_type == SCM_RIGHTS && CMSG_LEN(at + sizeof(int)) <= c->cmsg_len; at += sizeof(int)) {
            int file;
            memcpy(&file, CMSG_DATA(c) + at, sizeof file);
            if (got < call->count) call->files[got++] = file;
            else close(file);
        }
    memset(sentence, 0, WEFT_SENTENCE_BYTES_MAX + 1);
    if (head.status) memcpy(sentence, body, n < WEFT_SENTENCE_BYTES_MAX ? (size_t)n : WEFT_SENTENCE_BYTES_MAX);
    else if ((size_t)n != call->answer_size || got != call->count) head.status = EPROTO;
    else if (n) memcpy(call->answer, body, n);
    while (head.status && got) close(call->files[--got]);
    return head.status;
}

/* A process that shares the connection was killed during a call, whose answer may still come: receive up to the answer
 * of a call that fails in a way of no other one. */
static void skip_answers(struct context *c) {
    struct weft_destroy none = { .kind = WEFT_KIND_PD, .handle = UINT32_MAX };
    struct call marker = { .opcode = WEFT_DESTROY, .body = &none, .size = sizeof none };
    char sentence[WEFT_SENTENCE_BYTES_MAX + 1];
    int error = tell(c->socket, &marker);
    while (!error && !(hear(c->socket, &marker, sentence) == EIO && !*sentence) && !strstr(sentence, "4294967295")) continue;
}

/* Make one call; return 0 or an error number. */
int weft_call(struct context *c, struct call call) {
    char sentence[WEFT_SENTENCE_BYTES_MAX + 1] = "";
    if (pthread_mutex_lock(&c->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&c->lock);
        skip_answers(c);
    }
    int error = tell(c->socket, &call);
    if (!error) error = hear(c->socket, &call, sentence);
    if (error) weft_log("%s (%s)", sentence, strerror(error));
    pthread_mutex_unlock(&c->lock);
    if (error) errno = error;      /* as the system call of another provider sets it: programs print it */
    return error;
}

int weft_destroy(struct context *c, unsigned kind, uint32_t handle) {
    struct weft_destroy body = { .kind = kind, .handle = handle };
    return weft_call(c, (struct call){ .opcode = WEFT_DESTROY, .body = &body, .size = sizeof body });
}
