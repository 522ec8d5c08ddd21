/* Keys, ranges, rights and protection domains, at the peer and locally. */
#include "suite.h"

#include <sys/mman.h>

#define ACCESS "IBTA 9.7.4, 9.9.3: the responder NAKs Remote Access Error, and both QPs enter ERR"
#define LOCAL "IBTA 11.6.2: Local Protection Error; ibv_poll_cq(3)"

/* Post a request that the peer has to refuse for its access. Of its memory only `length` bytes at `from` may change. */
static void refused_but(struct pair *p, struct ibv_send_wr *wr, size_t from, size_t length) {
    memset(p->b.memory, 0x11, MEMORY);
    NEED(!post(p->qp, wr));
    struct ibv_wc wc = done(p->a.cq);
    CHECK(wc.wr_id == wr->wr_id, "the completion is another request's");
    STATUS(wc, IBV_WC_REM_ACCESS_ERR);
    CHECK(all(p->b.memory, from, 0x11) && all(p->b.memory + from + length, MEMORY - from - length, 0x11),
          "a byte of the peer changes");
    CHECK(fails(p->qp), "the requester stays in state %d", state_of(p->qp));
}

static void refused(struct pair *p, struct ibv_send_wr *wr) { refused_but(p, wr, 0, 0); }

/* Try a request of each kind with a change that makes its access illegal. */
static void each_kind_refused(void (*change)(struct pair *, struct ibv_send_wr *)) {
    static const enum ibv_wr_opcode kinds[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
    for (int i = 0; i < 3; i++) {
        struct pair p = connected(HOW);
        struct ibv_sge sge = part(&p.a, 0, 8);
        struct ibv_send_wr wr = request(kinds[i], &p, &sge, 1, 5);
        if (i == 2 && !(p.a.atomics && p.b.atomics)) break;
        memset(p.a.memory, 0x22, 8);
        change(&p, &wr);
        refused(&p, &wr);
        CHECK(all(p.a.memory, 8, 0x22), "a refused request changes the requester's memory");
    }
}

static void set_key(struct ibv_send_wr *wr, uint64_t address, uint32_t key) {
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) wr->wr.atomic.remote_addr = address, wr->wr.atomic.rkey = key;
    else wr->wr.rdma.remote_addr = address, wr->wr.rdma.rkey = key;
}

static void wrong_key(struct pair *p, struct ibv_send_wr *wr) {
    set_key(wr, (uintptr_t)p->b.memory, p->b.mr->rkey ^ 0x5500);
}

CASE(wrong_rkey_is_refused, ACCESS) { each_kind_refused(wrong_key); }

static void deregistered(struct pair *p, struct ibv_send_wr *wr) {
    struct ibv_mr *mr = ibv_reg_mr(p->b.pd, p->b.memory, PAGE, EVERYTHING);
    NEED(mr);
    set_key(wr, (uintptr_t)p->b.memory, mr->rkey);
    NEED(!ibv_dereg_mr(mr));
}

CASE(deregistered_rkey_is_refused, "IBTA 10.6: a deregistered region's keys are invalid") {
    each_kind_refused(deregistered);
}

static void other_domain(struct pair *p, struct ibv_send_wr *wr) {
    struct ibv_pd *pd = ibv_alloc_pd(p->b.context);
    struct ibv_mr *mr = pd ? ibv_reg_mr(pd, p->b.memory, PAGE, EVERYTHING) : NULL;
    NEED(mr);
    set_key(wr, (uintptr_t)p->b.memory, mr->rkey);
}

CASE(rkey_of_another_domain_is_refused, "IBTA 10.2.3, 10.6.3: region and QP must be of one protection domain") {
    each_kind_refused(other_domain);
}

static void no_rights(struct pair *p, struct ibv_send_wr *wr) {
    int needed = wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
               : wr->opcode == IBV_WR_RDMA_WRITE ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_mr *mr = ibv_reg_mr(p->b.pd, p->b.memory, PAGE, EVERYTHING & ~needed);
    NEED(mr);
    set_key(wr, (uintptr_t)p->b.memory, mr->rkey);
}

CASE(missing_right_of_region_is_refused, "IBTA 10.6.3, ibv_reg_mr(3): each remote right is separate") {
    each_kind_refused(no_rights);
}

CASE(missing_right_of_qp_is_refused, "IBTA 10.2.4, ibv_modify_qp(3): qp_access_flags limit what peers may do") {
    static const enum ibv_wr_opcode kinds[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
    static const int rights[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC };
    for (int i = 0; i < 3; i++) {
        struct how how = HOW;
        how.access &= ~(unsigned)rights[i];
        struct pair p = connected(how);
        struct ibv_sge sge = part(&p.a, 0, 8);
        struct ibv_send_wr wr = request(kinds[i], &p, &sge, 1, 5);
        if (i == 2 && !(p.a.atomics && p.b.atomics)) break;
        memset(p.b.memory, 0x11, MEMORY);
        NEED(!post(p.qp, &wr));
        struct ibv_wc wc = done(p.a.cq);
        CHECK(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR,
              "request %d completes with '%s'", i, ibv_wc_status_str(wc.status));
        CHECK(all(p.b.memory, MEMORY, 0x11), "a byte of the peer changes");
    }
}

/* Leave the region by a request of a length at an offset; bytes of the region that it names may change. */
static void leaves_region(long at, uint32_t length) {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, length);
    struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.memory + PAGE, PAGE, EVERYTHING);
    NEED(mr);
    struct ibv_send_wr wr = write_of(&p, &sge, 5, IBV_SEND_SIGNALED);
    set_key(&wr, (uintptr_t)p.b.memory + PAGE + (uint64_t)at, mr->rkey);
    long from = at < 0 ? 0 : at, to = at + (long)length < PAGE ? at + (long)length : PAGE;
    memset(p.a.memory, 0x22, length);
    refused_but(&p, &wr, PAGE + (size_t)from, to > from ? (size_t)(to - from) : 0);
    struct pair q = connected(HOW);
    struct ibv_mr *other = ibv_reg_mr(q.b.pd, q.b.memory + PAGE, PAGE, EVERYTHING);
    struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &q, &sge, 1, 6);
    sge = part(&q.a, 0, length);
    NEED(other);
    set_key(&read, (uintptr_t)q.b.memory + PAGE + (uint64_t)at, other->rkey);
    refused(&q, &read);
}

CASE(access_beyond_the_end_is_refused,
     "IBTA 9.7.4: no byte beside the region is accessed; those inside are undefined") {
    leaves_region(PAGE - 31, 32);
    leaves_region(0, PAGE + 1);
}

CASE(access_before_the_start_is_refused, "IBTA 9.7.4: no byte beside the region is accessed") { leaves_region(-1, 32); }

CASE(access_far_outside_is_refused, "IBTA 9.7.4: no byte beside the region is accessed") {
    leaves_region(PAGE + 100, 32);
}

CASE(address_that_wraps_is_refused, "IBTA 9.7.4: address plus length beyond 2^64 is outside every region") {
    static const enum ibv_wr_opcode kinds[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
    for (int i = 0; i < 2; i++) {
        struct pair p = connected(HOW);
        struct ibv_sge sge = part(&p.a, 0, 32);
        struct ibv_send_wr wr = request(kinds[i], &p, &sge, 1, 5);
        set_key(&wr, UINT64_MAX - 15, p.b.mr->rkey);
        memset(p.b.memory, 0x11, MEMORY);
        int error = post(p.qp, &wr);
        if (error) continue;
        struct ibv_wc wc = done(p.a.cq);
        CHECK(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_LOC_LEN_ERR, "it completes with '%s'",
              ibv_wc_status_str(wc.status));
        CHECK(all(p.b.memory, MEMORY, 0x11), "a byte of the peer changes");
    }
}

CASE(responder_reports_a_violation, "IBTA 11.6.3.2: event Local Access Violation; its receive requests are flushed") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    struct ibv_send_wr wr = write_of(&p, &sge, 5, IBV_SEND_SIGNALED);
    wrong_key(&p, &wr);
    for (uint64_t id = 1; id <= 3; id++) NEED(!give(p.peer, NULL, 0, id));
    refused(&p, &wr);
    CHECK(event_of(&p.b, IBV_EVENT_QP_ACCESS_ERR) == p.peer, "no event QP_ACCESS_ERR of the responder");
    for (uint64_t id = 1; id <= 3; id++) {
        struct ibv_wc wc = done(p.b.cq);
        CHECK(wc.wr_id == id && wc.status == IBV_WC_WR_FLUSH_ERR, "receive %lu completes with '%s'",
              (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
    }
    CHECK(fails(p.peer), "the responder stays in state %d", state_of(p.peer));
}

CASE(error_leaves_other_qps, "IBTA 10.3.1.7: ERR is a state of one QP") {
    struct pair p = connected(HOW);
    struct ibv_qp *qp = make_qp(&p.a, rc(&p.a)), *peer = make_qp(&p.b, rc(&p.b));
    join(&p.a, qp, &p.b, peer, HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    struct ibv_send_wr wr = write_of(&p, &sge, 5, IBV_SEND_SIGNALED), good = write_of(&p, &sge, 6, IBV_SEND_SIGNALED);
    wrong_key(&p, &wr);
    refused(&p, &wr);
    NEED(!post(qp, &good));
    succeeds(p.a.cq, 6);
    CHECK(state_of(qp) == IBV_QPS_RTS && state_of(peer) == IBV_QPS_RTS, "another QP left RTS");
}

/* ----------------------------------------------------------------------------------------------------------- local */

/* Post a list that the requester's device has to refuse; nothing may be written. */
static void own_refused(struct pair *p, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int count) {
    struct ibv_send_wr wr = request(opcode, p, sges, count, 5);
    memset(p->b.memory, 0x11, MEMORY);
    NEED(!post(p->qp, &wr));
    struct ibv_wc wc = done(p->a.cq);
    CHECK(wc.wr_id == 5, "the completion is another request's");
    STATUS(wc, IBV_WC_LOC_PROT_ERR);
    CHECK(all(p->b.memory, MEMORY, 0x11), "a byte of the peer changes");
    CHECK(fails(p->qp), "the QP stays in state %d", state_of(p->qp));
}

CASE(wrong_lkey_is_refused, LOCAL) {
    static const enum ibv_wr_opcode kinds[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND };
    for (int i = 0; i < 3; i++) {
        struct pair p = connected(HOW);
        struct ibv_sge sge = part(&p.a, 0, 100);
        sge.lkey ^= 0x5500;
        NEED(!give(p.peer, NULL, 0, 1));
        own_refused(&p, kinds[i], &sge, 1);
    }
}

CASE(lkey_of_another_domain_is_refused, LOCAL) {
    struct pair p = connected(HOW);
    struct ibv_pd *pd = ibv_alloc_pd(p.a.context);
    struct ibv_mr *mr = pd ? ibv_reg_mr(pd, p.a.memory, PAGE, EVERYTHING) : NULL;
    NEED(mr);
    struct ibv_sge sge = { (uintptr_t)p.a.memory, 100, mr->lkey };
    own_refused(&p, IBV_WR_RDMA_WRITE, &sge, 1);
}

CASE(sge_beyond_its_region_is_refused, LOCAL) {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, MEMORY - 31, 32);
    own_refused(&p, IBV_WR_RDMA_WRITE, &sge, 1);
}

CASE(bad_sge_amid_good_ones, "IBTA 11.6.2: a list with an invalid entry transfers nothing beyond what precedes it") {
    struct pair p = connected(HOW);
    struct ibv_sge sges[3] = { part(&p.a, 0, 100), part(&p.a, 200, 100), part(&p.a, 400, 100) };
    sges[1].lkey ^= 0x5500;
    own_refused(&p, IBV_WR_RDMA_WRITE, sges, 3);
    struct pair q = connected(HOW);
    struct ibv_sge again[3] = { part(&q.a, 0, 100), { 0x10, 100, q.a.mr->lkey }, part(&q.a, 400, 100) };
    own_refused(&q, IBV_WR_RDMA_WRITE, again, 3);
}

CASE(sge_that_wraps_is_refused, LOCAL) {
    struct pair p = connected(HOW);
    struct ibv_sge sge = { UINT64_MAX - 15, 32, p.a.mr->lkey };
    struct ibv_send_wr wr = write_of(&p, &sge, 5, IBV_SEND_SIGNALED);
    if (post(p.qp, &wr)) return;
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.status == IBV_WC_LOC_PROT_ERR || wc.status == IBV_WC_LOC_LEN_ERR, "it completes with '%s'",
          ibv_wc_status_str(wc.status));
}

CASE(sum_of_lengths_near_2_to_32,
     "IBTA 9.7, 11.4.1.1: a message longer than the limit is an error, and harms nothing else") {
    static const uint32_t lasts[] = { 0, 2, 102 }; /* sums of 2^32 - 2, 2^32 and 2^32 + 100 */
    for (int i = 0; i < 3; i++) {
        struct pair p = connected(HOW);
        struct ibv_sge sges[3] = { part(&p.a, 0, 0x7FFFFFFF), part(&p.a, 0, 0x7FFFFFFF), part(&p.a, 0, lasts[i]) };
        struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &p, sges, 3, 5);
        memset(p.b.memory, 0x11, MEMORY);
        if (!post(p.qp, &wr)) {
            struct ibv_wc wc = done(p.a.cq);
            CHECK(wc.status != IBV_WC_SUCCESS, "2^32 - 2 + %u bytes succeed", lasts[i]);
        }
        CHECK(all(p.b.memory, MEMORY, 0x11), "a byte of the peer changes");
        if (!i) settle(&p);
    }
}

CASE(read_needs_local_write, "IBTA 10.6.3, ibv_reg_mr(3): without LOCAL_WRITE the device does not write the region") {
    struct pair p = connected(HOW);
    struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.memory, PAGE, IBV_ACCESS_REMOTE_READ);
    NEED(mr);
    struct ibv_sge sge = { (uintptr_t)p.a.memory, 100, mr->lkey };
    memset(p.a.memory, 0x22, 100);
    own_refused(&p, IBV_WR_RDMA_READ, &sge, 1);
    CHECK(all(p.a.memory, 100, 0x22), "the region is written");
}

CASE(receive_needs_local_write,
     "IBTA 9.9.3: the receiver has Local Protection Error, the sender Remote Operational Error") {
    struct pair p = connected(HOW);
    struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.memory, PAGE, IBV_ACCESS_REMOTE_READ);
    NEED(mr);
    struct ibv_sge into = { (uintptr_t)p.b.memory, 100, mr->lkey }, sge = part(&p.a, 0, 100);
    memset(p.b.memory, 0x11, MEMORY);
    NEED(!give(p.peer, &into, 1, 1));
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, &sge, 1, 2);
    NEED(!post(p.qp, &wr));
    struct ibv_wc wc = done(p.b.cq), sent = done(p.a.cq);
    STATUS(wc, IBV_WC_LOC_PROT_ERR);
    STATUS(sent, IBV_WC_REM_OP_ERR);
    CHECK(all(p.b.memory, MEMORY, 0x11), "the region is written");
}

CASE(too_short_receive, "IBTA 9.9.3: the receiver has Local Length Error, the sender Remote Invalid Request Error") {
    struct pair p = connected(HOW);
    struct ibv_sge into = part(&p.b, 0, 99), sge = part(&p.a, 0, 100);
    memset(p.b.memory, 0x11, MEMORY);
    NEED(!give(p.peer, &into, 1, 1));
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, &sge, 1, 2);
    NEED(!post(p.qp, &wr));
    struct ibv_wc wc = done(p.b.cq), sent = done(p.a.cq);
    CHECK(wc.wr_id == 1, "another receive request completes");
    STATUS(wc, IBV_WC_LOC_LEN_ERR);
    STATUS(sent, IBV_WC_REM_INV_REQ_ERR);
    CHECK(all(p.b.memory + 99, MEMORY - 99, 0x11), "bytes beyond the receive request change");
}

CASE(remote_write_needs_local_write, "ibv_reg_mr(3): REMOTE_WRITE and REMOTE_ATOMIC require LOCAL_WRITE") {
    struct pair p = ends();
    CHECK(!ibv_reg_mr(p.a.pd, p.a.memory, PAGE, IBV_ACCESS_REMOTE_WRITE), "REMOTE_WRITE alone is accepted");
    CHECK(!ibv_reg_mr(p.a.pd, p.a.memory, PAGE, IBV_ACCESS_REMOTE_ATOMIC), "REMOTE_ATOMIC alone is accepted");
}

CASE(read_only_pages_take_no_write_access, "ibv_reg_mr(3): pages that the program may not write: EFAULT or EACCES") {
    struct pair p = ends();
    unsigned char *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(page != MAP_FAILED);
    CHECK(!ibv_reg_mr(p.a.pd, page, PAGE, EVERYTHING), "read-only pages are registered for writes");
}

CASE(absent_pages_are_refused, "ibv_reg_mr(3): EFAULT for addresses that are not mapped") {
    struct pair p = ends();
    unsigned char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(pages != MAP_FAILED && !munmap(pages + PAGE, PAGE));
    CHECK(!ibv_reg_mr(p.a.pd, pages, 2 * PAGE, EVERYTHING), "a hole is registered");
}

CASE(overlapping_regions, "IBTA 10.6.2: regions may overlap; the end of one leaves the others") {
    struct pair p = connected(HOW);
    struct ibv_mr *whole = ibv_reg_mr(p.b.pd, p.b.memory, 4 * PAGE, EVERYTHING);
    struct ibv_mr *inner = ibv_reg_mr(p.b.pd, p.b.memory + 100, PAGE, EVERYTHING);
    NEED(whole && inner);
    CHECK(whole->rkey != inner->rkey && whole->rkey != p.b.mr->rkey, "two regions have one key");
    NEED(!ibv_dereg_mr(whole));
    struct ibv_sge sge = part(&p.a, 0, 50);
    struct ibv_send_wr wr = write_of(&p, &sge, 1, IBV_SEND_SIGNALED);
    set_key(&wr, (uintptr_t)p.b.memory + 100, inner->rkey);
    fill(p.a.memory, 50, 3);
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 1);
    CHECK(filled(p.b.memory + 100, 50, 3), "the data differs");
}

CASE(unaligned_region, "ibv_reg_mr(3): any address and length") {
    struct pair p = connected(HOW);
    struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.memory + 4093, 7, EVERYTHING);
    NEED(mr);
    struct ibv_sge sge = part(&p.a, 0, 7);
    struct ibv_send_wr wr = write_of(&p, &sge, 1, IBV_SEND_SIGNALED);
    set_key(&wr, (uintptr_t)p.b.memory + 4093, mr->rkey);
    fill(p.a.memory, 7, 3);
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 1);
    CHECK(filled(p.b.memory + 4093, 7, 3), "the data differs");
    set_key(&wr, (uintptr_t)p.b.memory + 4092, mr->rkey);
    memcpy(p.a.memory, p.b.memory + 4092, 7);
    refused_but(&p, &wr, 4093, 6);
}

CASE(region_with_other_addresses, "ibv_reg_mr_iova(3): peers use the given addresses, also across 2^32") {
    struct pair p = connected(HOW);
    uint64_t iova = (1ull << 32) - PAGE;
    struct ibv_mr *mr = ibv_reg_mr_iova(p.b.pd, p.b.memory, 2 * PAGE, iova, EVERYTHING);
    LACKS(!mr, "ibv_reg_mr_iova: %s", strerror(errno));
    struct ibv_sge sge = part(&p.a, 0, PAGE);
    struct ibv_send_wr wr = write_of(&p, &sge, 1, IBV_SEND_SIGNALED);
    set_key(&wr, iova + PAGE / 2, mr->rkey);
    fill(p.a.memory, PAGE, 3);
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 1);
    CHECK(filled(p.b.memory + PAGE / 2, PAGE, 3), "the data differs");
}

CASE(registration_is_changed, "ibv_rereg_mr(3): new rights hold after the call") {
    struct pair p = connected(HOW);
    struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.memory, PAGE, EVERYTHING);
    NEED(mr);
    int error = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ);
    LACKS(error && (errno == EOPNOTSUPP || errno == ENOSYS), "ibv_rereg_mr: %s", strerror(errno));
    CHECK(!error, "ibv_rereg_mr: %s", strerror(errno));
    struct ibv_sge sge = part(&p.a, 0, 50);
    struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &p, &sge, 1, 1), wr = write_of(&p, &sge, 2, IBV_SEND_SIGNALED);
    set_key(&read, (uintptr_t)p.b.memory, mr->rkey);
    set_key(&wr, (uintptr_t)p.b.memory, mr->rkey);
    NEED(!post(p.qp, &read));
    succeeds(p.a.cq, 1);
    refused(&p, &wr);
}
