/* Registers memory of every kind, lets the card write and read it, and deregisters it; prints a line for each kind. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define LARGE (6 << 20)
#define THREADS 4

static unsigned char in_data[SMALL] = { 1 }, in_bss[SMALL];

/* Register memory, let the card write and read both ends, and check it again after deregistration. */
static void use(struct pair *p, const char *kind, void *memory, size_t size) {
    unsigned char *first = memory, *last = first + size - SMALL, back[SMALL];
    struct ibv_mr *mr = ibv_reg_mr(p->pd, memory, size, ALL), *of_back = ibv_reg_mr(p->pd, back, SMALL, ALL);
    if (!mr || !of_back) fail(kind, "not registered");
    for (unsigned char *at = first;; at = last) {
        if (moved(p, p->pattern, p->mr->lkey, at, mr->rkey, SMALL)) fail(kind, "not written");
        if (memcmp(at, p->pattern, SMALL)) fail(kind, "written wrong");
        at[1] = 99;
        if (moved(p, at, mr->lkey, back, of_back->rkey, SMALL) || memcmp(at, back, SMALL)) fail(kind, "read wrong");
        if (at == last) break;
    }
    if (ibv_dereg_mr(mr) || ibv_dereg_mr(of_back)) fail(kind, "not given back");
    if (last[1] != 99 || last[2] != p->pattern[2] || back[1] != 99) fail(kind, "lost when it was given back");
    last[3] = 5;
    printf("%s: good\n", kind);
}

static void refused(struct pair *p, const char *kind, void *memory, size_t size, int access, int error) {
    errno = 0;
    if (ibv_reg_mr(p->pd, memory, size, access) || errno != error) fail(kind, "not refused as it should be");
    printf("%s: refused, %s\n", kind, strerror(errno));
}

__attribute__((noinline)) static int deep(int n) {
    volatile char frame[8192];
    frame[0] = (char)n;
    return n ? deep(n - 1) + frame[0] : 0;
}

__attribute__((noinline)) static void on_stack(struct pair *p) {
    unsigned char memory[4 * SMALL];
    use(p, "stack", memory, sizeof memory);
    struct ibv_mr *mr = ibv_reg_mr(p->pd, memory, sizeof memory, ALL);
    deep(200);
    if (!mr || ibv_dereg_mr(mr)) fail("stack", "not given back");
    deep(300);
}

static void protected_memory(struct pair *p) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 4 * page;
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), back[SMALL];
    memcpy(memory, p->pattern, SMALL);
    mprotect(memory, size, PROT_READ);
    refused(p, "read-only memory to write", memory, size, ALL, EFAULT);
    struct ibv_mr *mr = ibv_reg_mr(p->pd, memory, size, 0), *of_back = ibv_reg_mr(p->pd, back, SMALL, ALL);
    if (!mr || moved(p, memory, mr->lkey, back, of_back->rkey, SMALL) || memcmp(back, p->pattern, SMALL))
        fail("read-only memory", "read wrong");
    int zero = open("/dev/zero", O_RDONLY); /* read() into the memory shows whether it is writable */
    for (int registered = 1; registered >= 0; registered--) {
        if (read(zero, memory, 1) != -1 || errno != EFAULT) fail("read-only memory", "writable");
        if (registered && ibv_dereg_mr(mr)) fail("read-only memory", "not given back");
    }
    close(zero);
    ibv_dereg_mr(of_back);
    puts("read-only memory: good");
    mprotect(memory + page, page, PROT_NONE);
    refused(p, "memory without permission", memory, size, 0, EFAULT);
    munmap(memory + page, page);
    refused(p, "memory that is not there", memory, size, 0, EFAULT);
    munmap(memory, size);
}

static void of_files(struct pair *p) {
    char name[] = "/tmp/weft-memories-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    unsigned char *shared, *private, byte = 1;
    if (file < 0 || ftruncate(file, 65536)) fail("file", "not made");
    private = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    use(p, "private memory of a file", private, 65536);
    if (pread(file, &byte, 1, 0) != 1 || byte) fail("private memory of a file", "the file has changed");
    shared = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    use(p, "shared memory of a file", shared, 65536);
    if (pread(file, &byte, 1, 65536 - SMALL + 2) != 1 || byte != p->pattern[2])
        fail("shared memory of a file", "the file has not changed");
    mprotect(shared, 65536, PROT_READ);
    refused(p, "read-only memory of a file to write", shared, 65536, ALL, EFAULT);
    struct ibv_mr *mr = ibv_reg_mr(p->pd, shared, 65536, IBV_ACCESS_REMOTE_READ);
    if (!mr || ibv_dereg_mr(mr)) fail("shared memory of a file", "not registered for reading");
    munmap(private, 65536);
    munmap(shared, 65536);
    close(file);
}

/* Memory that processes share, written by the card, is seen by a child. */
static void of_processes(struct pair *p, const char *kind, unsigned char *memory) {
    int status;
    use(p, kind, memory, 65536);
    struct ibv_mr *mr = ibv_reg_mr(p->pd, memory, 65536, ALL);
    if (!mr || moved(p, p->pattern, p->mr->lkey, memory, mr->rkey, SMALL)) fail(kind, "not written");
    pid_t child = fork();
    if (!child) {
        int same = !memcmp(memory, p->pattern, SMALL);
        memory[SMALL] = 9;
        _exit(!same);
    }
    if (waitpid(child, &status, 0) != child || status || memory[SMALL] != 9) fail(kind, "not shared any more");
    ibv_dereg_mr(mr);
}

static void shared_memory(struct pair *p) {
    unsigned char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    of_processes(p, "shared anonymous memory", memory);
    munmap(memory, 65536);
    int number = shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600);
    memory = shmat(number, NULL, 0);
    if (number < 0 || memory == (void *)-1 || shmctl(number, IPC_RMID, NULL)) fail("System V memory", "not made");
    of_processes(p, "System V memory", memory);
    shmdt(memory);
}

static void other_addresses(struct pair *p, unsigned char *memory) {
    uint64_t iova = 0x123450000 + (uintptr_t)memory % 4096;
    struct ibv_mr *mr = ibv_reg_mr_iova(p->pd, memory, SMALL, iova, ALL);
    if (!mr || moved(p, p->pattern, p->mr->lkey, (void *)iova, mr->rkey, SMALL) || memcmp(memory, p->pattern, SMALL))
        fail("another address", "not written");
    ibv_dereg_mr(mr);
    errno = 0;
    if (ibv_reg_mr_iova(p->pd, memory, SMALL, iova + 1, ALL) || errno != EINVAL)
        fail("another address", "not refused though it differs within a page");
    puts("another address: good");
}

static void huge(struct pair *p) {
    void *memory = mmap(NULL, 3 << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (memory == MAP_FAILED) {
        puts("huge pages: none here");
        return;
    }
    memset(memory, 3, 3 << 21);
    use(p, "huge pages", (char *)memory + (1 << 21) - 5000, 20000);
    if (*((char *)memory + (1 << 20)) != 3 || *((char *)memory + (5 << 20)) != 3) fail("huge pages", "lost");
    munmap(memory, 3 << 21);
}

static void other_contexts(struct pair *p, unsigned char *memory) {
    struct pair *other = open_pair();
    struct ibv_mr *mr = ibv_reg_mr(p->pd, memory, LARGE, ALL);
    use(other, "memory of two contexts", memory + 12345, LARGE / 2);
    close_pair(other);
    if (!mr || moved(p, p->pattern, p->mr->lkey, memory, mr->rkey, SMALL) || memcmp(memory, p->pattern, SMALL))
        fail("memory of two contexts", "lost with one of them");
    ibv_dereg_mr(mr);
}

static void registered_again(struct pair *p, unsigned char *memory) {
    struct ibv_mr *mr = ibv_reg_mr(p->pd, memory, SMALL, ALL);
    if (!mr || ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + (LARGE / 2), SMALL, 0))
        fail("another place", "not registered");
    if (moved(p, p->pattern, p->mr->lkey, memory + LARGE / 2, mr->rkey, SMALL)) fail("another place", "not written");
    if (memcmp(memory + LARGE / 2, p->pattern, SMALL)) fail("another place", "written wrong");
    ibv_dereg_mr(mr);
    puts("another place: good");
}

static void forked(struct pair *p, unsigned char *memory) {
    struct ibv_mr *mr = ibv_reg_mr(p->pd, memory, SMALL, ALL);
    int status = 1, go[2];
    memset(memory, 1, SMALL);
    if (!mr || pipe(go)) fail("fork", "not registered");
    pid_t child = fork();
    if (!child) {
        char byte;
        close(go[1]);
        int same = memory[0] == 1 && read(go[0], &byte, 1) == 0 && memory[SMALL - 1] == 1; /* after the card's write */
        memset(memory, 7, SMALL);
        _exit(!same);
    }
    if (moved(p, p->pattern, p->mr->lkey, memory, mr->rkey, SMALL)) fail("fork", "not written");
    close(go[1]);
    if (waitpid(child, &status, 0) != child || status) fail("fork", "the child saw what was not its own");
    if (memcmp(memory, p->pattern, SMALL)) fail("fork", "the parent saw what the child wrote");
    close(go[0]);
    ibv_dereg_mr(mr);
    puts("fork: good");
}

static void events(struct pair *p) {
    struct pollfd news = { .fd = p->context->async_fd, .events = POLLIN };
    struct ibv_async_event event;
    while (poll(&news, 1, 0)) { /* events of the connection */
        if (ibv_get_async_event(p->context, &event)) fail("events", "not there");
        ibv_ack_async_event(&event);
    }
    fcntl(news.fd, F_SETFL, fcntl(news.fd, F_GETFL) | O_NONBLOCK);
    if (ibv_get_async_event(p->context, &event) != -1 || errno != EAGAIN) fail("events", "there without a cause");
    if (moved(p, p->pattern, p->mr->lkey, p->pattern, p->mr->rkey ^ 1, 8) != IBV_WC_REM_ACCESS_ERR)
        fail("events", "a wrong key was good");
    if (poll(&news, 1, 10000) != 1 || ibv_get_async_event(p->context, &event)
        || event.event_type != IBV_EVENT_QP_ACCESS_ERR || event.element.qp != p->peer) fail("events", "no event");
    ibv_ack_async_event(&event);
    puts("events: good");
}

static void *in_thread(void *argument) {
    struct pair *p = open_pair();
    unsigned char *memory = malloc(2 * SMALL);
    (void)argument;
    for (int i = 0; i < 10; i++) {
        struct ibv_mr *mr = ibv_reg_mr(p->pd, memory + 100 * i, SMALL, ALL);
        memset(memory + 100 * i, 0, SMALL);
        if (!mr || moved(p, p->pattern, p->mr->lkey, memory + 100 * i, mr->rkey, SMALL)
            || memcmp(memory + 100 * i, p->pattern, SMALL) || ibv_dereg_mr(mr)) fail("threads", "written wrong");
    }
    free(memory);
    close_pair(p);
    return NULL;
}

int main(void) {
    if (ibv_fork_init()) fail("fork", "refused");
    struct pair *p = open_pair();
    unsigned char *heap = malloc(LARGE);
    pthread_t threads[THREADS];
    use(p, "heap", heap + 77, SMALL);
    use(p, "much memory", heap, LARGE);
    use(p, "data", in_data, SMALL);
    use(p, "bss", in_bss, SMALL);
    on_stack(p);
    protected_memory(p);
    of_files(p);
    shared_memory(p);
    huge(p);
    other_addresses(p, heap);
    other_contexts(p, heap);
    registered_again(p, heap);
    forked(p, heap);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, in_thread, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    puts("threads: good");
    events(p);
    close_pair(p);
    free(heap);
    return 0;
}
