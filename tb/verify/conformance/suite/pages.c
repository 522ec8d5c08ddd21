/* Pages of regions that programs change: unmapping, mapping, advice, growth, fork. */
#define _GNU_SOURCE
#include "suite.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *map(unsigned char *at, size_t pages) {
    unsigned char *found = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    NEED(found != MAP_FAILED);
    return found;
}

/* Write into a region of the peer. */
static void write_into(struct pair *p, unsigned char *to, struct ibv_mr *mr, size_t length, unsigned seed) {
    struct ibv_sge sge = part(&p->a, 0, length);
    struct ibv_send_wr wr = write_of(p, &sge, seed, IBV_SEND_SIGNALED);
    wr.wr.rdma.remote_addr = (uintptr_t)to;
    wr.wr.rdma.rkey = mr->rkey;
    fill(p->a.memory, length, seed);
    NEED(!post(p->qp, &wr));
    succeeds(p->a.cq, seed);
    CHECK(filled(to, length, seed), "the data of write %u differs", seed);
}

CASE(memory_is_ordinary_after_deregistration,
     "ibv_dereg_mr(3), madvise(2), mremap(2): deregistered memory behaves as any other") {
    struct pair p = connected(HOW);
    unsigned char *memory = map(NULL, 4);
    struct ibv_mr *mr = ibv_reg_mr(p.b.pd, memory, 4 * PAGE, EVERYTHING);
    NEED(mr);
    write_into(&p, memory, mr, 4 * PAGE, 1);
    NEED(!ibv_dereg_mr(mr));
    CHECK(filled(memory, 4 * PAGE, 1), "the end of the region changes its data");
    NEED(!madvise(memory, 2 * PAGE, MADV_DONTNEED));
    CHECK(all(memory, 2 * PAGE, 0), "pages have their former data after MADV_DONTNEED");
    fill(memory, 4 * PAGE, 2);
    unsigned char *grown = mremap(memory, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    NEED(grown != MAP_FAILED);
    CHECK(filled(grown, 4 * PAGE, 2) && all(grown + 4 * PAGE, 60 * PAGE, 0), "memory that grows has other data");
    memset(grown, 3, 64 * PAGE);
    NEED(mr = ibv_reg_mr(p.b.pd, grown, 64 * PAGE, EVERYTHING));
    write_into(&p, grown + 30 * PAGE, mr, 5 * PAGE, 4);
}

CASE(new_pages_at_an_address_are_registered, "ibv_reg_mr(3), mmap(2): a region has the pages of its registration") {
    struct pair p = connected(HOW);
    unsigned char *memory = map(NULL, 2);
    for (unsigned round = 1; round <= 4; round++) {
        struct ibv_mr *mr = ibv_reg_mr(p.b.pd, memory, 2 * PAGE, EVERYTHING);
        NEED(mr);
        write_into(&p, memory, mr, 2 * PAGE, round);
        NEED(!ibv_dereg_mr(mr));
        if (round % 2) NEED(!munmap(memory, 2 * PAGE));
        map(memory, 2);
        CHECK(all(memory, 2 * PAGE, 0), "new pages have the data of former ones");
    }
}

CASE(pages_beside_a_region_may_go, "ibv_reg_mr(3), munmap(2): a region holds its own pages, and no others") {
    struct pair p = connected(HOW);
    unsigned char *memory = map(NULL, 3);
    struct ibv_mr *mr = ibv_reg_mr(p.b.pd, memory + PAGE, PAGE, EVERYTHING);
    NEED(mr && !munmap(memory, PAGE) && !mprotect(memory + 2 * PAGE, PAGE, PROT_NONE));
    write_into(&p, memory + PAGE, mr, PAGE, 1);
    NEED(!munmap(memory + 2 * PAGE, PAGE));
    write_into(&p, memory + PAGE, mr, PAGE, 2);
    CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr: %s", strerror(errno));
}

CASE(region_survives_a_fork, "ibv_fork_init(3), fork(2): after a fork a region is the parent's memory") {
    int shown = ibv_is_fork_initialized() == IBV_FORK_UNNEEDED; /* otherwise children do not have the pages */
    int error = shown ? 0 : ibv_fork_init();
    LACKS(error, "ibv_fork_init: %s", strerror(error));
    struct pair p = connected(HOW);
    fill(p.b.memory, 3 * PAGE, 1);
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        if (shown) memset(p.b.memory, 0xEE, MEMORY);
        _exit(0);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child);
    CHECK(!status, "the child dies of signal %d", WTERMSIG(status));
    CHECK(filled(p.b.memory, 3 * PAGE, 1), "the parent has data of the child");
    fill(p.b.memory, 3 * PAGE, 2);
    struct ibv_sge sge = part(&p.a, 0, 3 * PAGE);
    struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &p, &sge, 1, 9);
    NEED(!post(p.qp, &read));
    succeeds(p.a.cq, 9);
    CHECK(filled(p.a.memory, 3 * PAGE, 2), "the device reads other memory than the parent writes");
    write_into(&p, p.b.memory, p.b.mr, 3 * PAGE, 3);
}
