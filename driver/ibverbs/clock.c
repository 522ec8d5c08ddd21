/* Simulated time: clocks and the processor's time stamp counter are read from the daemon's clock page.
 *
 * A clock reading takes 20 ns of simulated time, so that a program that polls a clock makes progress; no other
 * computation takes time. A reading of the counter traps (PR_SET_TSC), and the signal handler supplies the value. So a
 * program's handler for that signal is stored, and called for all other causes. The signal is never blocked, since the
 * kernel ends a program that traps while it is. A program that this one starts gets the trap only when it is ready. */
#include "preload.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define READING_NS 20
#define SECOND_NS 1000000000ull
#define EPOCH_S 1000000000ull /* calendar time at the start: 2001, so that waits of the kernel for it are short */
#define BOOTED_S 1000ull      /* start of the other clocks */

static const struct weft_clock *page;
static uint64_t local_ns; /* time of the program's last clock reading */
static int started;
static _Thread_local int masked; /* the program blocked the trap's signal */

static uint64_t later(uint64_t add) {
    uint64_t at = LOAD(local_ns), next;
    do {
        uint64_t now = LOAD(page->now_ns);
        next = (at > now ? at : now) + add;
    } while (!__atomic_compare_exchange_n(&local_ns, &at, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return next;
}

#ifdef __x86_64__

#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <x86intrin.h>

#define VDSO_BYTES 0x4000
#define STACK_BYTES (8u << 20) /* of a handler, at most */

static double mhz = 2500; /* frequency of the counter as in the kernel's report, with which programs compare it */
static uintptr_t vdso;
static struct sigaction noted; /* action that the program has set for the signal */
/* Mark on the stack before the frame of the program's handler that blocks the signal: its address, while it is there. A
 * jump out of the handler leaves it to be overwritten. */
static _Thread_local volatile uintptr_t *mark;

static int length_at(const uint8_t *code) {
    if (code[0] != 0x0f) return 0;
    return code[1] == 0x31 ? 2 : code[1] == 0x01 && code[2] == 0xf9 ? 3 : 0; /* rdtsc, rdtscp */
}

static uint64_t counter_of_machine(void) {
    prctl(PR_SET_TSC, PR_TSC_ENABLE);
    uint64_t value = __rdtsc();
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    return value;
}

static int set_mask(int how, const sigset_t *set, sigset_t *before) { return NEXT(pthread_sigmask)(how, set, before); }

/* Return true if code with this stack pointer runs in a handler that blocks the signal. */
static int handling(uintptr_t stack) {
    stack_t other;
    uintptr_t at = (uintptr_t)mark;
    if (!at || sigaltstack(NULL, &other)) return 0;
    uintptr_t base = (uintptr_t)other.ss_sp, size = other.ss_flags & SS_DISABLE ? 0 : other.ss_size;
    int below = at - base < size ? stack - base < size && stack < at : stack < at && at - stack < STACK_BYTES;
    return below && *mark == at;
}

/* Do what the program's action for the signal asks for. The return from the trap's handler restores the mask. */
static void pass_on(int number, siginfo_t *info, void *context) {
    struct sigaction to = noted;
    volatile uintptr_t *before = mark, here = 0;
    int sent = info->si_code <= 0; /* by a process, not by a fault, which repeats */
    if (to.sa_handler == SIG_IGN && sent) return;
    if (to.sa_handler == SIG_DFL || to.sa_handler == SIG_IGN
        || (!sent && handling((uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP]))) {
        NEXT(sigaction)(number, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
        if (sent) raise(number);
        return;
    }
    if (to.sa_flags & (int)SA_RESETHAND) noted = (struct sigaction){ .sa_handler = SIG_DFL };
    if (!(to.sa_flags & SA_NODEFER) || sigismember(&to.sa_mask, number)) here = (uintptr_t)(mark = &here);
    sigdelset(&to.sa_mask, number);
    set_mask(SIG_BLOCK, &to.sa_mask, NULL);
    if (to.sa_flags & SA_SIGINFO) to.sa_sigaction(number, info, context);
    else to.sa_handler(number);
    here = 0;
    mark = before;
}

static void on_trap(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t at = (uintptr_t)registers[REG_RIP];
    /* Only the trap has no fault address. After a jump to an address without code, the code must not be read. */
    int length = info->si_code == SI_KERNEL ? length_at((const uint8_t *)at) : 0;
    if (length) {
        int error = errno;
        /* Readings by the vDSO of the C library need the real counter. */
        uint64_t value = at - vdso < VDSO_BYTES ? counter_of_machine() : (uint64_t)((double)later(READING_NS) * mhz / 1e3);
        registers[REG_RAX] = (uint32_t)value;
        registers[REG_RDX] = (greg_t)(value >> 32);
        if (length == 3) registers[REG_RCX] = 0;
        registers[REG_RIP] += length;
        errno = error;
    } else pass_on(number, info, context);
}

static int trap(void) {
    struct sigaction ours = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
    char line[256];
    FILE *cpus = fopen("/proc/cpuinfo", "r");
    while (cpus && fgets(line, sizeof line, cpus) && sscanf(line, "cpu MHz : %lf", &mhz) != 1) continue;
    if (cpus) fclose(cpus);
    vdso = getauxval(AT_SYSINFO_EHDR);
    sigset_t signal, before;
    sigemptyset(&signal);
    sigaddset(&signal, SIGSEGV);
    if (!set_mask(SIG_UNBLOCK, &signal, &before)) masked = sigismember(&before, SIGSEGV);
    return NEXT(sigaction)(SIGSEGV, &ours, &noted) || prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
}

static void untrap(void) { prctl(PR_SET_TSC, PR_TSC_ENABLE); }

static void trap_again(void) { prctl(PR_SET_TSC, PR_TSC_SIGSEGV); }

#else

static struct sigaction noted;

static int handling(uintptr_t stack) { return stack && 0; }

static int trap(void) { return -1; }

static void untrap(void) {}

static void trap_again(void) {}

#endif

/* Runs once, before the first clock reading. */
__attribute__((constructor)) static void start(void) {
    if (__atomic_exchange_n(&started, 1, __ATOMIC_ACQ_REL)) return;
    const char *host = getenv("WEFT_SOCKET");
    char path[256];
    size_t length = host ? strlen(host) : 0;
    if (length < 5 || length + 2 > sizeof path || strcmp(host + length - 5, ".sock")) return;
    snprintf(path, sizeof path, "%.*s.clock", (int)length - 5, host);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return; /* the session uses wall-clock time */
    void *at = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) return;
    if (trap()) {
        fputs("weft: simulated time needs an x86-64 processor whose counter can be trapped; this program's clock is the "
              "one on the wall\n", stderr);
        return;
    }
    STORE(page, at);
}

static int simulated(void) {
    if (!LOAD(started)) start();
    return LOAD(page) != NULL;
}

PUBLIC uint64_t weft_clock_ns(void) { return LOAD(page) ? later(0) : 0; }

/* ------------------------------------------------------------------------------------------------------- clocks */

static int of_processor(clockid_t clock) {
    return clock < 0 || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID;
}

static struct timespec time_of(clockid_t clock, uint64_t ns) {
    uint64_t start_s = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI ? EPOCH_S : BOOTED_S;
    return (struct timespec){ .tv_sec = (time_t)(start_s + ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS) };
}

PUBLIC int clock_gettime(clockid_t clock, struct timespec *to) {
    if (of_processor(clock) || !simulated()) return NEXT(clock_gettime)(clock, to);
    *to = time_of(clock, later(READING_NS));
    return 0;
}

PUBLIC int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    if (!simulated()) return NEXT(gettimeofday)(to, zone);
    struct timespec now = time_of(CLOCK_REALTIME, later(READING_NS));
    *to = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
    return 0;
}

PUBLIC time_t time(time_t *to) {
    if (!simulated()) return NEXT(time)(to);
    time_t now = time_of(CLOCK_REALTIME, later(READING_NS)).tv_sec;
    if (to) *to = now;
    return now;
}

/* Sleep until a time of one of these clocks: for the remaining interval, because the kernel's clocks differ. */
PUBLIC int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    if (of_processor(clock) || !(flags & TIMER_ABSTIME) || !simulated())
        return NEXT(clock_nanosleep)(clock, flags, until, left);
    struct timespec now = time_of(clock, later(READING_NS));
    int64_t ns = (until->tv_sec - now.tv_sec) * (int64_t)SECOND_NS + until->tv_nsec - now.tv_nsec;
    if (ns <= 0) return 0;
    struct timespec wait = { .tv_sec = ns / (int64_t)SECOND_NS, .tv_nsec = ns % (int64_t)SECOND_NS };
    return NEXT(clock_nanosleep)(CLOCK_MONOTONIC, 0, &wait, NULL);
}

/* ------------------------------------------------------------------------------------------------------ signals */

PUBLIC int sigaction(int number, const struct sigaction *restrict wish, struct sigaction *restrict before) {
    if (!simulated()) return NEXT(sigaction)(number, wish, before);
    if (number != SIGSEGV) {
        struct sigaction open = wish ? *wish : (struct sigaction){ 0 };
        if (wish) sigdelset(&open.sa_mask, SIGSEGV);
        return NEXT(sigaction)(number, wish ? &open : NULL, before);
    }
    struct sigaction was = noted;
    if (wish) noted = *wish;
    if (before) *before = was;
    return 0;
}

/* Set an action as a function does that takes a handler only; return the handler before. */
static sighandler_t set_handler(int number, sighandler_t handler, int flags) {
    struct sigaction wish = { .sa_handler = handler, .sa_flags = flags }, before;
    return sigaction(number, &wish, &before) ? SIG_ERR : before.sa_handler;
}

#define SIGNAL(name, flags) \
    PUBLIC sighandler_t name(int number, sighandler_t handler) { \
        return number == SIGSEGV && simulated() ? set_handler(number, handler, flags) : NEXT(name)(number, handler); \
    }
sighandler_t bsd_signal(int number, sighandler_t handler);
sighandler_t __sysv_signal(int number, sighandler_t handler);
SIGNAL(signal, SA_RESTART)
SIGNAL(bsd_signal, SA_RESTART)
SIGNAL(ssignal, SA_RESTART)
SIGNAL(sysv_signal, (int)SA_RESETHAND | SA_NODEFER)
SIGNAL(__sysv_signal, (int)SA_RESETHAND | SA_NODEFER)

/* Change the mask of this thread, but for the trap's signal, of which only the program's wish is stored. */
#define MASK(name) \
    PUBLIC int name(int how, const sigset_t *restrict set, sigset_t *restrict before) { \
        if (!simulated()) return NEXT(name)(how, set, before); \
        int was = masked || handling((uintptr_t)__builtin_frame_address(0)); \
        sigset_t open; \
        if (set) open = *set; \
        int named = set && sigismember(set, SIGSEGV); \
        if (named) sigdelset(&open, SIGSEGV); \
        int error = NEXT(name)(how, set ? &open : NULL, before); \
        if (!error && set && (named || how == SIG_SETMASK)) masked = named && how != SIG_UNBLOCK; \
        if (!error && before && was) sigaddset(before, SIGSEGV); \
        return error; \
    }
MASK(sigprocmask)
MASK(pthread_sigmask)

/* ------------------------------------------------------------------------------------------ programs that start */

/* Start a program by the function of the C library, with the trap disabled. */
#define WITHOUT_TRAP(name, ...) ({ \
    int trapped = simulated(); \
    if (trapped) untrap(); \
    __auto_type result = NEXT(name)(__VA_ARGS__); \
    if (trapped) trap_again(); \
    result; })

PUBLIC int execve(const char *path, char *const arguments[], char *const environment[]) {
    return WITHOUT_TRAP(execve, path, arguments, environment);
}

PUBLIC int execvpe(const char *file, char *const arguments[], char *const environment[]) {
    return WITHOUT_TRAP(execvpe, file, arguments, environment);
}

PUBLIC int execv(const char *path, char *const arguments[]) { return execve(path, arguments, environ); }

PUBLIC int execvp(const char *file, char *const arguments[]) { return execvpe(file, arguments, environ); }

PUBLIC int posix_spawn(pid_t *restrict child, const char *restrict path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *restrict attributes, char *const arguments[restrict],
                       char *const environment[restrict]) {
    return WITHOUT_TRAP(posix_spawn, child, path, actions, attributes, arguments, environment);
}

PUBLIC int posix_spawnp(pid_t *restrict child, const char *restrict file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *restrict attributes, char *const arguments[restrict],
                        char *const environment[restrict]) {
    return WITHOUT_TRAP(posix_spawnp, child, file, actions, attributes, arguments, environment);
}

PUBLIC int system(const char *command) { return WITHOUT_TRAP(system, command); }

PUBLIC FILE *popen(const char *command, const char *mode) { return WITHOUT_TRAP(popen, command, mode); }
