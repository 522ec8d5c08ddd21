/* Private pages become pages of a file, in place, with what they hold, while other threads write to them.
 *
 * The pages are made read-only, copied and replaced. Who writes meanwhile gets a signal and waits in its handler. A
 * system call that writes there meanwhile fails with EFAULT: nobody can wait for that one. The stack of the thread that
 * asks is no exception: then another thread copies, and the handler runs on a stack of its own. */
#include "weft.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <time.h>
#include <unistd.h>

#define ALTERNATE_BYTES 65536
#define LATE_NS 1000000000ll /* a write that met read-only pages is told of it so late at most */

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
        return; /* and try again */
    }
    if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(number);
    else sigaction(number, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL); /* the second fault ends the program */
}

/* Have the handler in place, in front of whatever the program put there. */
static void watch(void) {
    struct sigaction now;
    sigaction(SIGSEGV, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return;
    before = now;
    struct sigaction ours = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
    sigaction(SIGSEGV, &ours, NULL);
}

static int replace(int file, uintptr_t start, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(file, (void *)(start + done), size - done, (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO;
        done += (size_t)n;
    }
    return mmap((void *)start, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED ? errno : 0;
}

static int freeze_and_replace(int file, uintptr_t start, size_t size) {
    first = start;
    last = start + size;
    __atomic_store_n(&frozen, 1, __ATOMIC_SEQ_CST);
    int error = mprotect((void *)start, size, PROT_READ) ? errno : replace(file, start, size);
    if (error) mprotect((void *)start, size, PROT_READ | PROT_WRITE);
    thawed_ns = now_ns();
    __atomic_store_n(&frozen, 0, __ATOMIC_SEQ_CST);
    return error == ENOMEM ? EFAULT : error;
}

struct job {
    int file, error;
    uintptr_t start;
    size_t size;
};

static void *work(void *argument) {
    struct job *job = argument; /* not on the stack of who waits for it */
    job->error = freeze_and_replace(job->file, job->start, job->size);
    return NULL;
}

/* The same, by another thread: the pages are of the stack that this one runs on. */
static int by_another(int file, uintptr_t start, size_t size) {
    pthread_t thread;
    stack_t mine, alternate = { .ss_sp = malloc(ALTERNATE_BYTES), .ss_size = ALTERNATE_BYTES };
    struct job *job = malloc(sizeof *job);
    int error = ENOMEM;
    if (job && alternate.ss_sp) {
        sigaltstack(NULL, &mine);
        if (mine.ss_flags & SS_DISABLE) sigaltstack(&alternate, NULL);
        *job = (struct job){ .file = file, .start = start, .size = size };
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

/* `size` bytes of whole pages from `start` on, which this process has, become the pages of `file`; 0 or an error
 * number. One at a time. */
int copy_into(int file, uintptr_t start, size_t size) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    int own = here + ALTERNATE_BYTES > start && here < start + size + ALTERNATE_BYTES;
    if (__libc_single_threaded && !own) return replace(file, start, size);
    watch();
    return own ? by_another(file, start, size) : freeze_and_replace(file, start, size);
}
