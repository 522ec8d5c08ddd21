/* Checks that memory stays ordinary anonymous memory: while it is registered, once or by overlapping regions, after
 * deregistration, and when a forked child has registered what its parent had. Prints a line for each failed check, and
 * their number. With the argument `signals` it checks only that signal handlers are called as the program asked. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define PAGE 4096
#define SIZE (16 * PAGE)
#define HALF (SIZE / 2)
#define REGIONS 2
#define OLD 0x11
#define NEW 0x5A
#define RW (PROT_READ | PROT_WRITE)

enum state { ALIVE, OVERLAPPED, READ_ONLY, AFTER, STATES };
static const char *const names[STATES] = { "registered", "overlapped", "registered for reading", "deregistered" };
static int failures, checks;

#define CHECK(condition) do { if (!(condition)) return #condition; } while (0)

static unsigned char *mapped(size_t size) {
    unsigned char *m = mmap(NULL, size, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) fail("mapping", "not made");
    memset(m, OLD, size);
    return m;
}

static int all(const unsigned char *m, size_t size, unsigned char value) {
    for (size_t i = 0; i < size; i++)
        if (m[i] != value) return 0;
    return 1;
}

/* Fork, run `does` in the child, and return its exit status. */
static int child_of(int (*does)(unsigned char *m), unsigned char *m) {
    int status;
    pid_t child = fork();
    if (!child) _exit(does(m));
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int sees_old(unsigned char *m) { return !all(m, SIZE, OLD); }
static int sees_new(unsigned char *m) { return !all(m, SIZE, NEW); }
static int writes(unsigned char *m) {
    memset(m, 0x77, SIZE);
    return 0;
}
static int unprotects_and_writes(unsigned char *m) { return mprotect(m, SIZE, RW) ? 1 : writes(m); }

/* Let the card write into memory and read it. */
static const char *carded(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    CHECK(!moved(p, p->pattern, p->mr->lkey, m, mr->rkey, PAGE));
    CHECK(!memcmp(m, p->pattern, PAGE));
    m[5] ^= 1;
    CHECK(!moved(p, m, mr->lkey, p->pattern + PAGE, p->mr->rkey, PAGE));
    CHECK(!memcmp(m, p->pattern + PAGE, PAGE));
    return NULL;
}

/* Each check gets filled memory, and its region if that is for writing. It may unmap the memory. */
static const char *decommit(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    CHECK(!madvise(m, HALF, MADV_DONTNEED));
    CHECK(all(m, HALF, 0) && all(m + HALF, HALF, OLD));
    CHECK(!mr || !carded(p, m, mr));
    CHECK(!madvise(m, SIZE, MADV_FREE) && !madvise(m, SIZE, MADV_WIPEONFORK));
    CHECK(!madvise(m, SIZE, MADV_DONTNEED) && all(m, SIZE, 0));
    return NULL;
}

static const char *grow(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    (void)p, (void)mr;
    unsigned char *to = mapped(4 * SIZE), *now = mremap(m, SIZE, 3 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    CHECK(now == to && all(now, SIZE, OLD) && all(now + SIZE, 2 * SIZE, 0));
    memset(now, OLD, 3 * SIZE);
    CHECK(!child_of(writes, now) && all(now, SIZE, OLD));
    struct ibv_mr *again = ibv_reg_mr(p->pd, now, 3 * SIZE, ALL);
    CHECK(again && !carded(p, now + 2 * SIZE, again) && !ibv_dereg_mr(again));
    CHECK(!child_of(writes, now) && all(now, SIZE, OLD));
    munmap(now, 4 * SIZE);
    return NULL;
}

static const char *shrink(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    CHECK(mremap(m, SIZE, HALF, 0) == m && all(m, HALF, OLD));
    CHECK(!mr || !carded(p, m, mr));
    unsigned char *grown = mremap(m, HALF, SIZE, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED && all(grown + HALF, HALF, 0));
    munmap(grown, SIZE);
    return NULL;
}

static const char *move_pages(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    unsigned char *to = mapped(SIZE), *now = mremap(m, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
    CHECK(now == to && all(now, SIZE, OLD) && all(m, SIZE, 0));
    CHECK(!mr || !carded(p, m, mr));
    CHECK(all(now, SIZE, OLD));
    munmap(now, SIZE);
    return NULL;
}

static const char *unmap_half(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    munmap(m + HALF, HALF);
    CHECK(all(m, HALF, OLD) && (!mr || !carded(p, m, mr)));
    struct ibv_mr *again = ibv_reg_mr(p->pd, m, HALF, ALL);
    CHECK(again && !ibv_dereg_mr(again) && !ibv_reg_mr(p->pd, m, SIZE, ALL) && errno == EFAULT);
    memset(m, OLD, HALF);
    pid_t child = fork();
    if (!child) {
        memset(m, 0x77, HALF);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child && all(m, HALF, OLD));
    return NULL;
}

static const char *map_again(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    munmap(m, SIZE);
    CHECK(mmap(m, SIZE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == m && all(m, SIZE, 0));
    memset(m, NEW, SIZE);
    CHECK(!child_of(sees_new, m) && !child_of(writes, m) && all(m, SIZE, NEW));
    CHECK(!mr || !carded(p, m, mr));
    struct ibv_mr *again = ibv_reg_mr(p->pd, m, SIZE, ALL);
    CHECK(again && !carded(p, m, again) && !ibv_dereg_mr(again));
    return NULL;
}

static const char *fork_both(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    int go[2], status;
    char byte;
    CHECK(!pipe(go));
    pid_t child = fork();
    if (!child) {
        close(go[1]);
        int waited = read(go[0], &byte, 1), same = !sees_old(m); /* after the parent's and the card's writes */
        _exit(waited || !same || writes(m));
    }
    memset(m, NEW, SIZE);
    const char *failed = mr ? carded(p, m, mr) : NULL;
    close(go[0]);
    close(go[1]);
    CHECK(waitpid(child, &status, 0) == child && !status && !failed);
    CHECK(all(m + HALF, HALF, NEW));
    return NULL;
}

static const char *protect(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    int zero = open("/dev/zero", O_RDONLY);
    (void)p, (void)mr;
    CHECK(!mprotect(m, SIZE, PROT_READ));
    CHECK(read(zero, m, 1) == -1 && errno == EFAULT);
    CHECK(!ibv_reg_mr(p->pd, m, SIZE, ALL) && errno == EFAULT);
    struct ibv_mr *again = ibv_reg_mr(p->pd, m, SIZE, IBV_ACCESS_REMOTE_READ);
    CHECK(again && !child_of(unprotects_and_writes, m) && all(m, SIZE, OLD));
    CHECK(!ibv_dereg_mr(again) && !child_of(unprotects_and_writes, m) && all(m, SIZE, OLD));
    CHECK(!mprotect(m, SIZE, PROT_NONE) && !ibv_reg_mr(p->pd, m, SIZE, 0) && errno == EFAULT);
    CHECK(!mprotect(m, SIZE, RW) && read(zero, m, HALF) == HALF && all(m, HALF, 0) && all(m + HALF, HALF, OLD));
    close(zero);
    return NULL;
}

static const struct {
    const char *name;
    const char *(*does)(struct pair *p, unsigned char *m, struct ibv_mr *mr);
} kinds[] = { { "decommit", decommit }, { "grow", grow }, { "shrink", shrink }, { "move", move_pages },
              { "unmap half", unmap_half }, { "map again", map_again }, { "fork", fork_both }, { "protect", protect } };

static void note(const char *name, const char *state, const char *failed) {
    checks++;
    if (!failed) return;
    failures++;
    printf("%s, %s: not %s\n", name, state, failed);
}

/* Run a check in a state; return the failed condition. */
static const char *in_state(struct pair *p, size_t kind, enum state state, unsigned char *m) {
    struct ibv_mr *mrs[REGIONS] = { ibv_reg_mr(p->pd, m, SIZE, state == READ_ONLY ? IBV_ACCESS_REMOTE_READ : ALL) };
    if (state == OVERLAPPED) mrs[1] = ibv_reg_mr(p->pd, m + 3 * PAGE, 2 * PAGE, ALL);
    if (!mrs[0] || (state == OVERLAPPED && !mrs[1])) return "registered";
    if (state == AFTER && ibv_dereg_mr(mrs[0])) return "deregistered";
    const char *failed = kinds[kind].does(p, m, state < READ_ONLY ? mrs[0] : NULL);
    if (state == AFTER) return failed;
    for (int i = 0; i < REGIONS; i++)
        if (mrs[i] && ibv_dereg_mr(mrs[i])) return "deregistered";
    return failed;
}

static void kinds_in_states(struct pair *p, const char *prefix) {
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (enum state state = 0; state < STATES; state++) {
            char where[100];
            unsigned char *m = mapped(SIZE);
            snprintf(where, sizeof where, "%s%s", prefix, names[state]);
            note(kinds[kind].name, where, in_state(p, kind, state, m));
            munmap(m, SIZE);
        }
}

/* A child with a separate context registers what its parent has registered. */
static const char *in_child(struct pair *p) {
    int status;
    unsigned char *m = mapped(SIZE);
    struct ibv_mr *mr = ibv_reg_mr(p->pd, m, SIZE, ALL);
    CHECK(mr);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        struct pair *own = open_pair();
        struct ibv_mr *again = ibv_reg_mr(own->pd, m, SIZE, ALL);
        if (!again || carded(own, m, again) || ibv_dereg_mr(again)) _exit(1);
        failures = 0;
        kinds_in_states(own, "child, ");
        fflush(stdout);
        _exit(failures ? 2 : 0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(all(m, SIZE, OLD) && !carded(p, m, mr) && !ibv_dereg_mr(mr));
    munmap(m, SIZE);
    return NULL;
}

/* A connection that a child inherits gives it regions of the child's memory. */
static const char *inherited(struct pair *p) {
    int status, keys[2], done[2];
    uint32_t rkey;
    char byte;
    unsigned char *m = mapped(SIZE);
    CHECK(!pipe(keys) && !pipe(done));
    pid_t child = fork();
    if (!child) {
        struct ibv_mr *mr = ibv_reg_mr(p->pd, m, SIZE, ALL);
        if (!mr || write(keys[1], &mr->rkey, sizeof rkey) != sizeof rkey || read(done[0], &byte, 1) != 1) _exit(1);
        _exit(memcmp(m, p->pattern, PAGE) || ibv_dereg_mr(mr) ? 2 : 0);
    }
    close(keys[1]);
    CHECK(read(keys[0], &rkey, sizeof rkey) == sizeof rkey);
    CHECK(!moved(p, p->pattern, p->mr->lkey, m, rkey, PAGE) && write(done[1], "", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && !status && all(m, SIZE, OLD));
    close(keys[0]);
    close(done[0]);
    close(done[1]);
    munmap(m, SIZE);
    return NULL;
}

/* A child that ends leaves its region on the connection, which still serves the parent. */
static const char *left_by_child(void) {
    struct pair *p = open_pair(); /* it stays open: the region is in its domain */
    int status, keys[2];
    uint32_t rkey;
    unsigned char *m = mapped(SIZE);
    CHECK(!pipe(keys));
    pid_t child = fork();
    if (!child) {
        struct ibv_mr *mr = ibv_reg_mr(p->pd, m, SIZE, ALL);
        _exit(!mr || write(keys[1], &mr->rkey, sizeof rkey) != sizeof rkey);
    }
    CHECK(read(keys[0], &rkey, sizeof rkey) == sizeof rkey && waitpid(child, &status, 0) == child && !status);
    CHECK(!moved(p, p->pattern, p->mr->lkey, m, rkey, PAGE) && all(m, SIZE, OLD));
    struct ibv_mr *mr = ibv_reg_mr(p->pd, m, SIZE, ALL);
    CHECK(mr && !carded(p, m, mr) && !ibv_dereg_mr(mr));
    close(keys[0]);
    close(keys[1]);
    munmap(m, SIZE);
    return NULL;
}

/* What allocators do: realloc by mremap, and calloc from memory that was given back to the kernel. */
static const char *allocator(struct pair *p, int after) {
    size_t size = 8 << 20;
    for (int heap = 0; heap < 2; heap++) {
        mallopt(M_MMAP_THRESHOLD, heap ? 32 << 20 : 64 << 10);
        unsigned char *m = malloc(size);
        memset(m, OLD, size);
        struct ibv_mr *mr = ibv_reg_mr(p->pd, m, size, ALL);
        CHECK(mr && (!after || !ibv_dereg_mr(mr)));
        m = realloc(m, 2 * size);
        CHECK(m && all(m, size, OLD));
        memset(m + size, OLD, size);
        free(m);
        malloc_trim(0);
        unsigned char *zeros = calloc(2, size);
        CHECK(all(zeros, 2 * size, 0) && (after || !ibv_dereg_mr(mr)) && all(zeros, 2 * size, 0));
        free(zeros);
    }
    return NULL;
}

static int lines_of(const char *name) {
    int c, lines = 0;
    FILE *file = fopen(name, "r");
    while ((c = getc(file)) != EOF) lines += c == '\n';
    fclose(file);
    return lines;
}

/* Registrations take no descriptor, file size or mapping of the program, and nothing limits the pieces of a region. */
static int spares(unsigned char *m) {
    struct pair *p = open_pair();
    enum { COUNT = 1200 };
    static struct ibv_mr *mrs[COUNT + 1];
    int next = dup(0), mappings = lines_of("/proc/self/maps");
    close(next);
    struct rlimit files = { 64, 64 }, none = { 0, 0 };
    if (setrlimit(RLIMIT_FSIZE, &none) || setrlimit(RLIMIT_NOFILE, &files)) return 1;
    for (int i = 0; i < COUNT; i++)
        if (!(mrs[i] = ibv_reg_mr(p->pd, m + (size_t)i * PAGE, PAGE, ALL))) return 2;
    if (!(mrs[COUNT] = ibv_reg_mr(p->pd, m, COUNT * PAGE, ALL))) return 3;
    if (dup(0) != next || lines_of("/proc/self/maps") > mappings + 2) return 4; /* the heap and the stack may grow */
    for (int i = 0; i <= COUNT; i++)
        if (ibv_dereg_mr(mrs[i])) return 5;
    return 0;
}

/* A process that changed its user is not dumpable, and may not open its own files in /proc. */
static int changes_user(unsigned char *m) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(*list);
    if (!context || (!geteuid() && setresuid(65534, 65534, 65534)) || prctl(PR_SET_DUMPABLE, 0)) return 1;
    if (open("/proc/self/mem", O_RDWR) >= 0) return 2;
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_mr *mr = pd ? ibv_reg_mr(pd, m, SIZE, ALL) : NULL;
    return !mr || ibv_dereg_mr(mr) || prctl(PR_GET_DUMPABLE) ? 3 : 0;
}

static volatile int stop;

/* Read into memory with a system call until the end; return the number of failures. */
static void *calls(void *m) {
    long failed = 0;
    int zero = open("/dev/zero", O_RDONLY);
    while (!stop) failed += read(zero, m, SIZE) != SIZE;
    close(zero);
    return (void *)failed;
}

static const char *system_calls(struct pair *p) {
    unsigned char *m = mapped(SIZE);
    pthread_t thread;
    void *failed;
    pthread_create(&thread, NULL, calls, m);
    for (int i = 0; i < 50; i++) CHECK(!ibv_dereg_mr(ibv_reg_mr(p->pd, m, SIZE, ALL)));
    stop = 1;
    pthread_join(thread, &failed);
    CHECK(!failed);
    return NULL;
}

static sigjmp_buf back;
static volatile int right;
static volatile int *volatile nowhere = (int *)8;
static char alternate[65536];

static void on_fault(int number, siginfo_t *info, void *context) {
    sigset_t blocked;
    char here;
    (void)context;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    right = number == SIGSEGV && info->si_addr == (void *)8 && sigismember(&blocked, SIGUSR1)
        && sigismember(&blocked, SIGSEGV) && &here >= alternate && &here < alternate + sizeof alternate;
    siglongjmp(back, 1);
}

static void register_beside_threads(void *m) {
    struct pair *p = open_pair();
    stop = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, calls, m);
    ibv_dereg_mr(ibv_reg_mr(p->pd, m, SIZE, ALL));
    stop = 1;
    pthread_join(thread, NULL);
}

/* A handler that the program sets, before a registration or between two, is called as it asked, and only once. */
static int handles(unsigned char *m) {
    struct sigaction mine = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND }, now;
    sigemptyset(&mine.sa_mask);
    sigaddset(&mine.sa_mask, SIGUSR1);
    sigaltstack(&(stack_t){ .ss_sp = alternate, .ss_size = sizeof alternate }, NULL);
    for (volatile int between = 0; between < 2; between++) {
        if (between) register_beside_threads(m);
        sigaction(SIGSEGV, &mine, NULL);
        register_beside_threads(m);
        if (!sigsetjmp(back, 1)) *nowhere = 1;
        sigaction(SIGSEGV, NULL, &now);
        if (!right || now.sa_handler != SIG_DFL) return 1 + between;
        right = 0;
    }
    return 0;
}

static volatile int *calls_of_handler; /* shared with the parent */
static struct sigaction former;

static void restores(int number) {
    (void)number;
    ++*calls_of_handler;
    sigaction(SIGSEGV, &former, NULL);
}

static void restores_and_raises(int number) {
    restores(number);
    raise(number);
}

static void calls_former(int number) {
    ++*calls_of_handler;
    if (former.sa_handler == restores) former.sa_handler = SIG_DFL, restores(number);
}

static void faults(int number) {
    (void)number;
    if (++*calls_of_handler < 3) *nowhere = 1;
    _exit(9);
}

/* Handlers after which the program dies of its fault, and how often they are called. */
static const struct {
    void (*first)(int), (*second)(int);
    int flags, times;
} fatal[] = { { SIG_DFL, SIG_DFL, 0, 0 },      { SIG_IGN, SIG_IGN, 0, 0 },
              { SIG_DFL, restores, 0, 1 },     { SIG_DFL, restores, SA_NODEFER, 1 },
              { SIG_DFL, restores, SA_ONSTACK, 1 }, { SIG_DFL, restores_and_raises, SA_NODEFER, 1 },
              { restores, calls_former, 0, 2 }, { SIG_DFL, faults, 0, 1 },
              { SIG_DFL, faults, SA_ONSTACK, 1 }, { SIG_DFL, calls_former, (int)SA_RESETHAND, 1 } };

static void dies(unsigned char *m, size_t kind) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    sigaltstack(&(stack_t){ .ss_sp = alternate, .ss_size = sizeof alternate }, NULL);
    signal(SIGSEGV, fatal[kind].first);
    register_beside_threads(m);
    sigaction(SIGSEGV, &(struct sigaction){ .sa_handler = fatal[kind].second, .sa_flags = fatal[kind].flags }, &former);
    register_beside_threads(m);
    *nowhere = 1;
    _exit(8);
}

static uint64_t counter(void) {
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return 1;
#endif
}

static void reads_counter(int number) {
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    right = counter() && sigismember(&blocked, SIGUSR2) && sigismember(&blocked, number);
}

static void reads_and_jumps(int number) {
    reads_counter(number);
    siglongjmp(back, 1);
}

/* Code that blocks signals reads the processor's counter, which traps in simulated time. */
static int blocks(unsigned char *m) {
    struct sigaction mine = { .sa_handler = reads_counter }, now;
    sigset_t every, blocked;
    (void)m;
    sigfillset(&every);
    mine.sa_mask = every;
    if (sigaction(SIGUSR1, &mine, NULL) || raise(SIGUSR1) || !right) return 1;
    mine.sa_handler = reads_and_jumps;
    for (volatile int i = right = 0; i < 2; i++, right = 0) {
        if (sigaction(SIGSEGV, &mine, NULL)) return 2;
        if (!sigsetjmp(back, 1)) *nowhere = 1;
        if (!right || !counter()) return 3;
    }
    if (sigprocmask(SIG_SETMASK, &every, NULL) || !counter()) return 4;
    if (pthread_sigmask(SIG_BLOCK, NULL, &blocked) || !sigismember(&blocked, SIGSEGV)) return 5;
    sigemptyset(&every);
    if (sigprocmask(SIG_SETMASK, &every, &blocked) || !sigismember(&blocked, SIGSEGV) || !counter()) return 6;
    if (sigprocmask(SIG_SETMASK, NULL, &blocked) || sigismember(&blocked, SIGSEGV)) return 7;
    if (sysv_signal(SIGSEGV, reads_and_jumps) != reads_and_jumps || !counter()) return 8;
    if (sigaction(SIGSEGV, NULL, &now) || now.sa_handler != reads_and_jumps || !(now.sa_flags & (int)SA_RESETHAND))
        return 9;
    return 0;
}

static const char *signals(void) {
    int status;
    unsigned char *m = mapped(SIZE);
    calls_of_handler = mmap(NULL, sizeof *calls_of_handler, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(calls_of_handler != MAP_FAILED && child_of(handles, m) == 0);
    for (size_t kind = 0; kind < sizeof fatal / sizeof *fatal; kind++) {
        *calls_of_handler = 0;
        pid_t child = fork();
        if (!child) dies(m, kind);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && *calls_of_handler == fatal[kind].times);
    }
    CHECK((status = child_of(blocks, m)) == 0);
    return NULL;
}

/* Pages that are gone: a write to them is dropped, a read fails, and other connections work. */
static const char *absent(struct pair *p) {
    struct pair *other = open_pair();
    unsigned char *m = mapped(SIZE);
    struct ibv_mr *mr = ibv_reg_mr(other->pd, m, SIZE, ALL);
    CHECK(mr);
    munmap(m + HALF, HALF);
    CHECK(!carded(other, m, mr));
    CHECK(!moved(other, other->pattern, other->mr->lkey, m + HALF, mr->rkey, PAGE));
    CHECK(moved(other, m + HALF, mr->lkey, other->pattern, other->mr->rkey, PAGE) > 0);
    CHECK(!ibv_dereg_mr(mr));
    close_pair(other);
    mr = ibv_reg_mr(p->pd, m, HALF, ALL);
    CHECK(mr && !carded(p, m, mr) && !ibv_dereg_mr(mr));
    munmap(m, HALF);
    return NULL;
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "signals")) {
        const char *failed = signals();
        puts(failed ? failed : "signals: good");
        return failed != NULL;
    }
    struct pair *p = open_pair();
    unsigned char *many = mapped(1200 * PAGE);
    note("resources", "registered", child_of(spares, many) ? "spared" : NULL);
    note("memory", "changed user", child_of(changes_user, many) ? "registered" : NULL);
    kinds_in_states(p, "");
    note("memory", "child", in_child(p));
    note("connection", "child", inherited(p));
    note("connection", "ended child", left_by_child());
    note("allocator", "registered", allocator(p, 0));
    note("allocator", "deregistered", allocator(p, 1));
    note("system calls", "registered", system_calls(p));
    note("signals", "registered", signals());
    note("absent pages", "registered", absent(p));
    close_pair(p);
    printf("%d checks, %d failed\n", checks, failures);
    return failures > 0;
}
