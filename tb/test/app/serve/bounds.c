/* Accesses that leave a region, or a list with an impossible entry: `bounds SOCKET`, with another host's socket.
 *
 * Such a request fails with the error that the specification names, later ones are flushed, and no byte outside the
 * region changes. Of the region, the bytes that a write named may have changed. An invalid list transfers nothing. */
#include "checks.h"

#define PAGE 4096
#define SIZE (8 * PAGE)     /* of a region, between two pages that do not belong to it */

struct end {
    struct host h;
    struct ibv_mr *mr;
    unsigned char *memory; /* the region */
};

static struct end new_end(const char *path, int access) {
    struct end e = { .h = open_host(path) };
    unsigned char *whole = aligned_alloc(PAGE, SIZE + 2 * PAGE);
    NEED(whole);
    memset(whole, 0x11, SIZE + 2 * PAGE);
    e.memory = whole + PAGE;
    NEED(e.mr = ibv_reg_mr(e.h.pd, e.memory, SIZE, access));
    return e;
}

/* Return true if every byte around the region is as it was, and those of the region except `count` from `from` on. */
static int untouched(const struct end *e, long from, long count) {
    for (long i = -PAGE; i < SIZE + PAGE; i++)
        if ((i < from || i >= from + count) && e->memory[i] != 0x11) return 0;
    return 1;
}

/* Post a request between a write that succeeds and one that is flushed, and check all three. */
static void attempt(const char *what, struct end *from, struct end *to, int opcode, struct ibv_sge *sges, int count,
                    void *remote, uint32_t rkey, int expected, long written, long length) {
    struct ibv_qp_cap cap = { 8, 8, 4, 4, 16 };
    struct ibv_qp *qp = new_qp(&from->h, NULL, &cap), *peer = new_qp(&to->h, NULL, &cap);
    const int statuses[] = { IBV_WC_SUCCESS, expected, IBV_WC_WR_FLUSH_ERR };
    unsigned char one = 0x11;
    struct ibv_sge inner = { (uintptr_t)&one, 1, 0 };
    struct ibv_wc wc;
    NEED(qp && peer);
    join(&from->h, qp, &to->h, peer);
    memset(from->memory - PAGE, 0x11, SIZE + 2 * PAGE);
    memset(to->memory - PAGE, 0x11, SIZE + 2 * PAGE);
    memset(from->memory, 0x22, SIZE);
    NEED(!post(qp, IBV_WR_RDMA_WRITE, &inner, 1, to->memory, to->mr->rkey, IBV_SEND_INLINE));
    NEED(!post(qp, opcode, sges, count, remote, rkey, 0));
    NEED(!post(qp, IBV_WR_RDMA_WRITE, &inner, 1, to->memory, to->mr->rkey, IBV_SEND_INLINE));
    for (int i = 0; i < 3; i++) {
        int status = status_of(from->h.cq, &wc);
        CHECK(status == statuses[i], "%s, request %d: %s", what, i, ibv_wc_status_str(wc.status));
    }
    CHECK(untouched(to, written, length), "%s: a byte outside", what);
    for (long i = -PAGE; i < SIZE + PAGE; i++)
        if (from->memory[i] != (i < 0 || i >= SIZE ? 0x11 : 0x22)) {
            CHECK(opcode == IBV_WR_RDMA_READ && i >= 0 && i < SIZE, "%s: byte %ld at the requester", what, i);
            break;
        }
    NEED(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer));
}

static void all(struct end *from, struct end *to) {
    struct ibv_sge some = { (uintptr_t)from->memory, 3 * PAGE, from->mr->lkey };
    const long over[] = { 1, PAGE, 3 * PAGE - 1 };
    for (int i = 0; i < 3; i++) {
        long at = SIZE - 3 * PAGE + over[i];
        attempt("a write that crosses the end", from, to, IBV_WR_RDMA_WRITE, &some, 1, to->memory + at, to->mr->rkey,
                IBV_WC_REM_ACCESS_ERR, at, SIZE - at);
        attempt("a write with immediate that crosses the end", from, to, IBV_WR_RDMA_WRITE_WITH_IMM, &some, 1,
                to->memory + at, to->mr->rkey, IBV_WC_REM_ACCESS_ERR, at, SIZE - at);
        attempt("a read that crosses the end", from, to, IBV_WR_RDMA_READ, &some, 1, to->memory + at, to->mr->rkey,
                IBV_WC_REM_ACCESS_ERR, 0, 0);
        attempt("a write that begins before the region", from, to, IBV_WR_RDMA_WRITE, &some, 1, to->memory - over[i],
                to->mr->rkey, IBV_WC_REM_ACCESS_ERR, 0, 3 * PAGE - over[i]);
        attempt("a read that begins before the region", from, to, IBV_WR_RDMA_READ, &some, 1, to->memory - over[i],
                to->mr->rkey, IBV_WC_REM_ACCESS_ERR, 0, 0);
    }
    struct ibv_sge list[] = { { (uintptr_t)from->memory, 100, from->mr->lkey },
                              { (uintptr_t)from->memory + 200, 100, from->mr->lkey ^ 0x5500 },
                              { (uintptr_t)from->memory + 400, 100, from->mr->lkey } };
    for (int i = 0; i < 3; i++) {
        if (i == 1) list[1] = (struct ibv_sge){ (uintptr_t)from->memory + SIZE - 1, 100, from->mr->lkey };
        if (i == 2) list[1] = (struct ibv_sge){ (uintptr_t)from->memory - 1, 100, from->mr->lkey };
        attempt("a write of good, bad, good", from, to, IBV_WR_RDMA_WRITE, list, 3, to->memory + PAGE, to->mr->rkey,
                IBV_WC_LOC_PROT_ERR, 0, 0);
        attempt("a write with immediate of good, bad, good", from, to, IBV_WR_RDMA_WRITE_WITH_IMM, list, 3,
                to->memory + PAGE, to->mr->rkey, IBV_WC_LOC_PROT_ERR, 0, 0);
        attempt("a send of good, bad, good", from, to, IBV_WR_SEND, list, 3, NULL, 0, IBV_WC_LOC_PROT_ERR, 0, 0);
        attempt("a read into good, bad, good", from, to, IBV_WR_RDMA_READ, list, 3, to->memory + PAGE, to->mr->rkey,
                IBV_WC_LOC_PROT_ERR, 0, 0);
    }
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    struct end a = new_end(NULL, EVERYTHING), b = new_end(arguments[1], EVERYTHING), own = a;
    NEED(own.memory = aligned_alloc(PAGE, SIZE + 2 * PAGE));
    own.memory += PAGE;
    NEED(own.mr = ibv_reg_mr(a.h.pd, own.memory, SIZE, EVERYTHING));
    all(&a, &b);
    all(&a, &own);
    printf("%d checks are wrong\n", wrong);
    return wrong > 0;
}
