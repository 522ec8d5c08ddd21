/* Atomics, and the depth of reads and atomics. */
#include "suite.h"

#define ATOMIC "IBTA 9.4.5: FetchAdd and CmpSwap return the former value"

static uint64_t *word(struct end *end, size_t at) { return (uint64_t *)(void *)(end->memory + at); }

/* Carry out an atomic on the peer's first word; return the former value. */
static uint64_t atomic(struct pair *p, enum ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap) {
    struct ibv_sge sge = part(&p->a, 0, 8);
    struct ibv_send_wr wr = request(opcode, p, &sge, 1, 1);
    need_atomics(p);
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
    *word(&p->a, 0) = 0x5555;
    *word(&p->a, 8) = 0x6666;
    NEED(!post(p->qp, &wr));
    succeeds(p->a.cq, 1);
    CHECK(*word(&p->a, 8) == 0x6666, "more than 8 bytes are returned");
    return *word(&p->a, 0);
}

CASE(fetch_and_add, ATOMIC) {
    struct pair p = connected(HOW);
    *word(&p.b, 0) = 0x0123456789ABCDEF;
    *word(&p.b, 8) = 7;
    CHECK(atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 0x1111, 0) == 0x0123456789ABCDEF, "the former value differs");
    CHECK(*word(&p.b, 0) == 0x0123456789ABDF00 && *word(&p.b, 8) == 7, "the sum differs");
}

CASE(fetch_and_add_wraps, "IBTA 9.4.5: the sum is modulo 2^64") {
    struct pair p = connected(HOW);
    *word(&p.b, 0) = UINT64_MAX;
    CHECK(atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0) == UINT64_MAX && *word(&p.b, 0) == 1, "the sum differs");
    CHECK(atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, UINT64_MAX, 0) == 1 && *word(&p.b, 0) == 0, "the difference differs");
}

CASE(compare_and_swap, ATOMIC) {
    struct pair p = connected(HOW);
    *word(&p.b, 0) = 10;
    CHECK(atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 11, 99) == 10 && *word(&p.b, 0) == 10, "an unequal value is swapped");
    CHECK(atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 10, 99) == 10 && *word(&p.b, 0) == 99, "an equal value is not swapped");
}

CASE(unaligned_atomic_is_refused, "IBTA 9.4.5, 9.7.4: an address that is no multiple of 8 is an Invalid Request") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    struct ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &p, &sge, 1, 1);
    wr.wr.atomic.remote_addr += 4;
    wr.wr.atomic.compare_add = 1;
    need_atomics(&p);
    memset(p.b.memory, 0x11, MEMORY);
    if (!post(p.qp, &wr)) { /* it may also be refused at once */
        struct ibv_wc wc = done(p.a.cq);
        STATUS(wc, IBV_WC_REM_INV_REQ_ERR);
    }
    CHECK(all(p.b.memory, MEMORY, 0x11), "a byte of the peer changes");
}

CASE(atomic_into_seven_bytes_is_refused,
     "IBTA 9.4.5, 11.6.2: the result has 8 bytes; a local error, such as Local Length Error") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 7);
    struct ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &p, &sge, 1, 1);
    need_atomics(&p);
    p.a.memory[7] = 0x22;
    if (post(p.qp, &wr)) return;
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_PROT_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR,
          "it completes with '%s'", ibv_wc_status_str(wc.status));
    CHECK(p.a.memory[7] == 0x22, "the byte after the list changes");
}

CASE(atomics_of_two_qps_are_atomic, "IBTA 9.4.5: atomics through one device on a word exclude each other") {
    struct pair p = ends();
    need_atomics(&p);
    enum { EACH = 30 };
    struct ibv_qp *qps[2], *peers[2];
    for (int i = 0; i < 2; i++) {
        qps[i] = make_qp(&p.a, rc(&p.a));
        peers[i] = make_qp(&p.b, rc(&p.b));
        join(&p.a, qps[i], &p.b, peers[i], HOW);
    }
    for (uint64_t i = 0; i < 2 * EACH; i++) {
        struct ibv_sge sge = part(&p.a, i * 8, 8);
        struct ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &p, &sge, 1, i);
        wr.wr.atomic.compare_add = 1;
        NEED(!post(qps[i % 2], &wr));
    }
    for (int i = 0; i < 2 * EACH; i++) {
        struct ibv_wc wc = done(p.a.cq);
        STATUS(wc, IBV_WC_SUCCESS);
    }
    char seen[2 * EACH] = { 0 };
    for (size_t i = 0; i < 2 * EACH; i++) {
        uint64_t value = *word(&p.a, i * 8);
        CHECK(value < 2 * EACH && !seen[value], "value %lu is returned twice", (unsigned long)value);
        seen[value] = 1;
    }
    CHECK(*word(&p.b, 0) == 2 * EACH, "the sum is %lu", (unsigned long)*word(&p.b, 0));
}

/* More reads and atomics than may be outstanding, if `depth` may be. */
static void deeper_than(uint8_t depth) {
    struct how how = HOW;
    how.reads = how.peer_reads = depth;
    struct pair p = connected(how);
    fill(p.b.memory + 8, 40000, 7);
    for (uint64_t i = 0; i < 20; i++) {
        int add = p.a.atomics && p.b.atomics && i % 5 == 4;
        struct ibv_sge sge = part(&p.a, 8 + i * 2000, add ? 8 : 2000);
        struct ibv_send_wr wr = request(add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_READ, &p, &sge, 1, i);
        if (add) wr.wr.atomic.compare_add = 1;
        else wr.wr.rdma.remote_addr += 8 + i * 2000;
        NEED(!post(p.qp, &wr));
    }
    for (uint64_t i = 0; i < 20; i++) succeeds(p.a.cq, i);
    CHECK(*word(&p.b, 0) == (p.a.atomics && p.b.atomics ? 4 : 0), "%lu atomics are carried out",
          (unsigned long)*word(&p.b, 0));
    for (size_t i = 0; i < 20; i++)
        CHECK(i % 5 == 4 || !memcmp(p.a.memory + 8 + i * 2000, p.b.memory + 8 + i * 2000, 2000), "read %zu differs", i);
}

CASE(more_reads_than_depth_one, "IBTA 9.7.3, 10.8.3: the requester limits outstanding reads by itself") {
    deeper_than(1);
}

CASE(more_reads_than_depth_four, "IBTA 9.7.3, 10.8.3: the requester limits outstanding reads by itself") {
    deeper_than(4);
}

CASE(reads_without_depth_are_refused, "IBTA 11.2: without READ resources a read fails, and does not wait for ever") {
    struct how how = HOW;
    how.reads = 0;
    struct pair p = connected(how);
    struct ibv_sge sge = part(&p.a, 0, 8);
    struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &p, &sge, 1, 1);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    NEED(!ibv_query_qp(p.qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init));
    LACKS(attr.max_rd_atomic, "max_rd_atomic 0 becomes %d", attr.max_rd_atomic);
    if (post(p.qp, &wr)) return;
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.status != IBV_WC_SUCCESS, "a read succeeds with max_rd_atomic 0");
}

CASE(responder_without_depth_refuses, "IBTA 9.7.4: a READ beyond the responder's resources is an Invalid Request") {
    struct how how = HOW;
    how.peer_reads = 0;
    struct pair p = connected(how);
    struct ibv_sge sge = part(&p.a, 0, 8);
    struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &p, &sge, 1, 1);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    NEED(!ibv_query_qp(p.peer, &attr, IBV_QP_MAX_DEST_RD_ATOMIC, &init));
    LACKS(attr.max_dest_rd_atomic, "max_dest_rd_atomic 0 becomes %d", attr.max_dest_rd_atomic);
    NEED(!post(p.qp, &wr));
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR, "the read completes with '%s'",
          ibv_wc_status_str(wc.status));
}

CASE(impossible_depth_is_refused, "ibv_modify_qp(3), ibv_query_device(3): EINVAL beyond max_qp_rd_atom") {
    struct pair p = ends();
    struct ibv_device_attr limits;
    NEED(!ibv_query_device(p.a.context, &limits));
    LACKS(limits.max_qp_rd_atom >= 255, "max_qp_rd_atom is %d", limits.max_qp_rd_atom);
    struct how how = HOW;
    how.peer_reads = (uint8_t)(limits.max_qp_rd_atom + 1);
    struct ibv_qp *qp = make_qp(&p.a, rc(&p.a));
    NEED(!to_init(qp, EVERYTHING));
    CHECK(to_rtr(qp, &p.a, &p.b, qp->qp_num, how) == EINVAL, "max_dest_rd_atomic %d is not EINVAL", how.peer_reads);
}

CASE(fence_waits_for_reads, "IBTA 10.8.3, ibv_post_send(3): IBV_SEND_FENCE: prior reads and atomics complete first") {
    struct pair p = connected(HOW);
    struct ibv_sge got = part(&p.a, 0, 8000);
    for (unsigned round = 1; round <= 5; round++) {
        struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &p, &got, 1, 1);
        struct ibv_send_wr back = write_of(&p, &got, 2, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
        fill(p.b.memory, 8000, round);
        memset(p.a.memory, 0, 8000);
        back.wr.rdma.remote_addr += 32768;
        read.next = &back;
        NEED(!post(p.qp, &read));
        succeeds(p.a.cq, 1);
        succeeds(p.a.cq, 2);
        CHECK(filled(p.b.memory + 32768, 8000, round), "the fenced write has data from before the read");
    }
}

CASE(fence_waits_for_atomics, "IBTA 10.8.3, ibv_post_send(3): IBV_SEND_FENCE: prior reads and atomics complete first") {
    struct pair p = connected(HOW);
    struct ibv_sge got = part(&p.a, 0, 8), into = part(&p.b, 64, 8);
    need_atomics(&p);
    *word(&p.b, 0) = 40;
    struct ibv_send_wr add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &p, &got, 1, 1);
    struct ibv_send_wr send = request(IBV_WR_SEND, &p, &got, 1, 2);
    add.wr.atomic.compare_add = 2;
    send.send_flags |= IBV_SEND_FENCE;
    add.next = &send;
    NEED(!give(p.peer, &into, 1, 3) && !post(p.qp, &add));
    succeeds(p.a.cq, 1);
    succeeds(p.a.cq, 2);
    succeeds(p.b.cq, 3);
    CHECK(*word(&p.b, 64) == 40 && *word(&p.b, 0) == 42, "the fenced send has %lu", (unsigned long)*word(&p.b, 64));
}
