/* Replacement of private pages by pages of a file, in place and with their contents, while other threads write to them.
 *
 * The pages are made read-only, copied and replaced. A thread that writes to them meanwhile gets a signal and waits in
 * its handler. A system call that writes to them meanwhile fails with EFAULT, because it cannot wait. The stack of the
 * calling thread can be replaced, too: then another thread copies, and the handler runs on a separate stack. */
#include "weft.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <time.h>
#include <unistd.h>

#define ALTERNATE_BYTES 65536
#define LATE_NS 1000000000ll /* longest delay of the signal after a write to read-only pages */

static volatile uintptr_t first, last;
static volatile int frozen;
static volatile int64_t thawed_ns;
static struct sigaction before;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    if (at >= first && at < last && (frozen || now_ns() - thawed_ns < LATE_NS)) {
        int error = errno;
        while (frozen) sched_yield();
        errno = error;
        return; /* retries the write */
    }
    if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(number);
    else sigaction(number, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL); /* the second fault ends the program */
}

/* Install the handler; it calls the one that the program has set. */
static void watch(void) {
    struct sigaction now;
    sigaction(SIGSEGV, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return;
    before = now;
    struct sigaction ours = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
    sigaction(SIGSEGV, &ours, NULL);
}

static int replace(const struct pages *p) {
    for (size_t done = 0; done < p->size;) {
        ssize_t n = pwrite(p->file, (void *)(p->start + done), p->size - done, p->offset + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO;
        done += (size_t)n;
    }
    void *there = mmap((void *)p->start, p->size, p->protection, MAP_SHARED | MAP_FIXED, p->file, p->offset);
    return there == MAP_FAILED ? errno : 0;
}

static int freeze_and_replace(const struct pages *p) {
    first = p->start;
    last = p->start + p->size;
    __atomic_store_n(&frozen, 1, __ATOMIC_SEQ_CST);
    int error = mprotect((void *)p->start, p->size, PROT_READ) ? errno : replace(p);
    if (error) mprotect((void *)p->start, p->size, p->protection);
    thawed_ns = now_ns();
    __atomic_store_n(&frozen, 0, __ATOMIC_SEQ_CST);
    return error == ENOMEM ? EFAULT : error;
}

struct job {
    struct pages pages;
    int error;
};

static void *work(void *argument) {
    struct job *job = argument; /* not on the stack of the waiting thread */
    job->error = freeze_and_replace(&job->pages);
    return NULL;
}

/* Replace pages of this thread's stack, in another thread. */
static int by_another(const struct pages *pages) {
    pthread_t thread;
    stack_t mine, alternate = { .ss_sp = malloc(ALTERNATE_BYTES), .ss_size = ALTERNATE_BYTES };
    struct job *job = malloc(sizeof *job);
    int error = ENOMEM;
    if (job && alternate.ss_sp) {
        sigaltstack(NULL, &mine);
        if (mine.ss_flags & SS_DISABLE) sigaltstack(&alternate, NULL);
        *job = (struct job){ .pages = *pages };
        error = pthread_create(&thread, NULL, work, job);
        if (!error) {
            pthread_join(thread, NULL);
            error = job->error;
        }
        if (mine.ss_flags & SS_DISABLE) sigaltstack(&mine, NULL);
    }
    free(job);
    free(alternate.ss_sp);
    return error;
}

/* A stack grows only below its original pages, so touch some below the ones that will be replaced. */
__attribute__((noinline)) static void deepen(void) {
    volatile char below[ALTERNATE_BYTES];
    for (size_t at = sizeof below; at; at -= 4096) below[at - 4096] = 0;
}

/* Replace pages of this process by pages of a file, with the same contents; return 0 or an error number. Not
 * reentrant. */
int copy_into(const struct pages *p) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    int own = here + ALTERNATE_BYTES > p->start && here < p->start + p->size + ALTERNATE_BYTES;
    if (!(p->protection & PROT_WRITE) || (__libc_single_threaded && !own)) return replace(p); /* no other writer */
    watch();
    if (!own) return freeze_and_replace(p);
    deepen();
    return by_another(p);
}
