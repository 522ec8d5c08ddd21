/* Memory regions: `regions changes` changes some by ibv_rereg_mr, `regions rights` the access to one; `regions many
 * COUNT` has COUNT regions of a page. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

#define PAGE 4096
#define SIZE (4 * PAGE)
#define MUCH ((size_t)8 << 30) /* beyond the quota of a program */
#define RW (PROT_READ | PROT_WRITE)
#define CHECK(condition) do { if (!(condition)) fail("line " LINE(__LINE__), "not " #condition); } while (0)
#define LINE(number) TEXT(number)
#define TEXT(number) #number

static unsigned char *mapped(size_t size, int protection) {
    unsigned char *m = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(m != MAP_FAILED);
    return m;
}

static int resident(unsigned char *m) {
    unsigned char found[SIZE / PAGE];
    CHECK(!mincore(m, SIZE, found));
    for (size_t i = 0; i < sizeof found; i++)
        if (found[i] & 1) return 1;
    return 0;
}

/* Return the status of a write by the card into memory, after checking that it arrived if it succeeded. */
static int written(struct pair *p, unsigned char *m, struct ibv_mr *mr) {
    p->pattern[0]++;
    int status = moved(p, p->pattern, p->mr->lkey, m, mr->rkey, PAGE);
    CHECK(status || !memcmp(m, p->pattern, PAGE));
    return status;
}

/* A change that fails leaves the region as it was, and its target without pages. */
static void fails(struct ibv_mr *mr, int flags, struct ibv_pd *pd, unsigned char *m, size_t size, int access, int result,
                  int error) {
    struct ibv_mr before = *mr;
    errno = 0;
    CHECK(ibv_rereg_mr(mr, flags, pd, m, size, access) == result && errno == error);
    CHECK(!memcmp(&before, mr, sizeof before));
}

static void changes(struct pair *p) {
    enum { MOVE = IBV_REREG_MR_CHANGE_TRANSLATION, ACCESS = IBV_REREG_MR_CHANGE_ACCESS, PD = IBV_REREG_MR_CHANGE_PD };
    struct pair *other = open_pair();
    unsigned char *m = mapped(SIZE, RW), *to = mapped(SIZE, RW), *read_only = mapped(SIZE, PROT_READ);
    struct ibv_mr *mr = ibv_reg_mr(p->pd, m, SIZE, ALL), *reads = ibv_reg_mr(p->pd, read_only, SIZE, IBV_ACCESS_REMOTE_READ);
    CHECK(mr && reads && !written(p, m, mr));
    /* The argument `access` counts with its flag only. */
    fails(mr, MOVE, NULL, read_only, SIZE, 0, IBV_REREG_MR_ERR_INPUT, EFAULT);
    CHECK(!written(p, m, mr));
    CHECK(!ibv_rereg_mr(reads, MOVE, NULL, read_only + PAGE, PAGE, ALL));
    CHECK(reads->addr == read_only + PAGE && reads->length == PAGE);
    CHECK(!ibv_rereg_mr(mr, MOVE, NULL, to, SIZE, 0) && resident(to) && !written(p, to, mr));
    /* Pages are allocated after the daemon's consent, and only with it. */
    unsigned char *much = mapped(MUCH, RW);
    fails(mr, MOVE, NULL, much, MUCH, 0, IBV_REREG_MR_ERR_CMD, ENOMEM);
    CHECK(!resident(much) && !written(p, to, mr));
    fails(mr, MOVE | ACCESS, NULL, much, SIZE, IBV_ACCESS_REMOTE_WRITE, IBV_REREG_MR_ERR_CMD, EINVAL);
    CHECK(!resident(much) && !written(p, to, mr));
    /* A region gets write access only to memory that permits it. */
    fails(reads, ACCESS, NULL, NULL, 0, ALL, IBV_REREG_MR_ERR_INPUT, EFAULT);
    CHECK(!mprotect(read_only, SIZE, RW) && !ibv_rereg_mr(reads, ACCESS, NULL, NULL, 0, ALL));
    CHECK(!written(p, read_only + PAGE, reads));
    CHECK(!ibv_rereg_mr(reads, ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ));
    /* Arguments that are wrong at once. */
    fails(mr, 0, NULL, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT, EINVAL);
    fails(mr, 8, NULL, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT, EINVAL);
    fails(mr, MOVE, NULL, NULL, SIZE, 0, IBV_REREG_MR_ERR_INPUT, EINVAL);
    fails(mr, MOVE, NULL, m, 0, 0, IBV_REREG_MR_ERR_INPUT, EINVAL);
    fails(mr, PD, NULL, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT, EINVAL);
    fails(mr, PD, other->pd, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT, EINVAL);
    CHECK(!written(p, to, mr));
    struct ibv_pd *pd = ibv_alloc_pd(p->context);
    CHECK(pd && !ibv_rereg_mr(mr, PD, pd, NULL, 0, 0) && mr->pd == pd && ibv_dealloc_pd(pd) == EBUSY);
    CHECK(!ibv_rereg_mr(mr, PD | MOVE | ACCESS, p->pd, m, PAGE, ALL) && mr->pd == p->pd && !written(p, m, mr));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_dereg_mr(mr) && !ibv_dereg_mr(reads));
    close_pair(other);
}

/* A write allocates other pages than the reads that the region was for. */
static void rights(struct pair *p) {
    unsigned char *m = mapped(PAGE, PROT_READ);
    struct ibv_mr *mr = ibv_reg_mr(p->pd, m, PAGE, IBV_ACCESS_REMOTE_READ);
    CHECK(mr);
    fails(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL, IBV_REREG_MR_ERR_INPUT, EFAULT);
    CHECK(!mprotect(m, PAGE, RW) && !ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL));
    CHECK(!written(p, m, mr) && !ibv_dereg_mr(mr));
}

static double now_s(void) {
    struct timespec now;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &now));
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void many(struct pair *p, int count) {
    struct ibv_mr **mrs = calloc((size_t)count, sizeof *mrs);
    unsigned char *m = mapped((size_t)count * PAGE, RW);
    CHECK(mrs && !setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 64, 64 }));
    double start = now_s();
    for (int i = 0; i < count; i++)
        CHECK(mrs[i] = ibv_reg_mr(p->pd, m + (size_t)i * PAGE, PAGE, i % 10 ? IBV_ACCESS_LOCAL_WRITE : ALL));
    double took = now_s() - start;
    for (int i = 0; i < count; i += count / 10) {
        unsigned char *at = m + (size_t)i * PAGE;
        CHECK(!written(p, at, mrs[i]));
        /* That of a region without access for peers is a source, but no destination. */
        memset(at + PAGE, i, PAGE);
        CHECK(!moved(p, at + PAGE, mrs[i + 1]->lkey, at, mrs[i]->rkey, PAGE) && !memcmp(at, at + PAGE, PAGE));
    }
    CHECK(written(p, m + PAGE, mrs[1]) == IBV_WC_REM_ACCESS_ERR);
    start = now_s();
    for (int i = 0; i < count; i++) CHECK(!ibv_dereg_mr(mrs[i]));
    printf("registered and deregistered in %.3f s\n", took + now_s() - start);
    free(mrs);
}

int main(int count, char **arguments) {
    struct pair *p = open_pair();
    if (count > 2) many(p, atoi(arguments[2]));
    else if (count > 1 && !strcmp(arguments[1], "rights")) rights(p);
    else changes(p);
    close_pair(p);
    puts("good");
    return 0;
}
