/* ERR: flush, its order, later requests, recovery. */
#include "suite.h"

#define FLUSH "IBTA 10.3.1.7: in ERR all requests complete with Flushed, in order"

static void flushed(struct ibv_cq *cq, uint64_t id) {
    struct ibv_wc wc = done(cq);
    CHECK(wc.wr_id == id, "wr_id %lu instead of %lu", (unsigned long)wc.wr_id, (unsigned long)id);
    STATUS(wc, IBV_WC_WR_FLUSH_ERR);
}

CASE(receives_are_flushed_in_order, FLUSH) {
    struct pair p = connected(HOW);
    for (uint64_t id = 1; id <= DEPTH; id++) NEED(!give(p.peer, NULL, 0, id));
    NEED(!to_state(p.peer, IBV_QPS_ERR));
    for (uint64_t id = 1; id <= DEPTH; id++) flushed(p.b.cq, id);
    nothing(p.b.cq, "after the flush");
}

CASE(sends_are_flushed_in_order, "IBTA 10.3.1.7, 10.8.6: flushed requests complete in order, also unsignaled ones") {
    struct pair p = connected(HOW);
    for (uint64_t id = 1; id <= 20; id++) { /* they wait for receive requests */
        struct ibv_send_wr wr = request(IBV_WR_SEND, &p, NULL, 0, id);
        wr.send_flags = id % 3 ? 0 : IBV_SEND_SIGNALED;
        NEED(!post(p.qp, &wr));
    }
    NEED(!to_state(p.qp, IBV_QPS_ERR));
    for (uint64_t id = 1; id <= 20; id++) flushed(p.a.cq, id);
    nothing(p.a.cq, "after the flush");
}

CASE(requests_in_error_are_flushed, "IBTA 10.3.1.7: requests may be posted in ERR, and are flushed") {
    struct pair p = connected(HOW);
    NEED(!to_state(p.qp, IBV_QPS_ERR));
    for (uint64_t id = 1; id <= 5; id++) {
        struct ibv_send_wr wr = request(IBV_WR_SEND, &p, NULL, 0, id);
        NEED(!post(p.qp, &wr));
        flushed(p.a.cq, id);
        NEED(!give(p.qp, NULL, 0, id + 100));
        flushed(p.a.cq, id + 100);
    }
}

CASE(only_the_first_fault_has_a_status,
     "IBTA 10.3.1.7: requests after a failed one are flushed, whatever their faults") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 8), bad = part(&p.a, 0, 8);
    bad.lkey ^= 0x5500;
    struct ibv_send_wr first = request(IBV_WR_RDMA_READ, &p, &sge, 1, 1);
    struct ibv_send_wr second = write_of(&p, &bad, 2, IBV_SEND_FENCE); /* it does not start before the read is over */
    struct ibv_send_wr third = write_of(&p, &sge, 3, IBV_SEND_SIGNALED);
    first.wr.rdma.rkey ^= 0x5500;
    third.wr.rdma.rkey ^= 0x5500;
    first.next = &second;
    second.next = &third;
    NEED(!post(p.qp, &first));
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.wr_id == 1, "request %lu fails first", (unsigned long)wc.wr_id);
    STATUS(wc, IBV_WC_REM_ACCESS_ERR);
    flushed(p.a.cq, 2);
    flushed(p.a.cq, 3);
    nothing(p.a.cq, "after the flush");
}

CASE(requests_before_a_fault_succeed, "IBTA 10.8.3: requests in front of a failed one complete successfully") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 3000);
    for (uint64_t id = 1; id <= 9; id++) {
        struct ibv_send_wr wr = write_of(&p, &sge, id, IBV_SEND_SIGNALED);
        if (id == 6) wr.wr.rdma.rkey ^= 0x5500;
        NEED(!post(p.qp, &wr));
    }
    for (uint64_t id = 1; id <= 5; id++) succeeds(p.a.cq, id);
    struct ibv_wc wc = done(p.a.cq);
    STATUS(wc, IBV_WC_REM_ACCESS_ERR);
    for (uint64_t id = 7; id <= 9; id++) flushed(p.a.cq, id);
}

CASE(failed_qp_recovers_by_reset, "IBTA 10.3.1.1: ERR to RESET, and the QP connects again") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 3000);
    for (int round = 0; round < 3; round++) {
        struct ibv_send_wr wr = write_of(&p, &sge, 1, IBV_SEND_SIGNALED);
        wr.wr.rdma.rkey ^= 0x5500;
        NEED(!post(p.qp, &wr));
        struct ibv_wc wc = done(p.a.cq);
        STATUS(wc, IBV_WC_REM_ACCESS_ERR);
        NEED(!to_state(p.qp, IBV_QPS_RESET) && !to_state(p.peer, IBV_QPS_RESET));
        join(&p.a, p.qp, &p.b, p.peer, HOW);
        struct ibv_send_wr good = write_of(&p, &sge, 2, IBV_SEND_SIGNALED);
        fill(p.a.memory, 3000, (unsigned)round);
        NEED(!post(p.qp, &good));
        succeeds(p.a.cq, 2);
        CHECK(filled(p.b.memory, 3000, (unsigned)round), "the data differs");
    }
}

CASE(error_completion_has_its_fields,
     "ibv_poll_cq(3): of a failed completion wr_id, status, qp_num and vendor_err are valid") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    struct ibv_send_wr wr = write_of(&p, &sge, 0xABCDEF0123, IBV_SEND_SIGNALED);
    wr.wr.rdma.rkey ^= 0x5500;
    NEED(!post(p.qp, &wr));
    struct ibv_wc wc = done(p.a.cq);
    STATUS(wc, IBV_WC_REM_ACCESS_ERR);
    CHECK(wc.wr_id == 0xABCDEF0123 && wc.qp_num == p.qp->qp_num, "wr_id or qp_num differs");
}

CASE(error_twice_is_one_error, "IBTA 10.3.1: ERR to ERR is legal, and completes nothing again") {
    struct pair p = connected(HOW);
    NEED(!give(p.qp, NULL, 0, 1));
    NEED(!to_state(p.qp, IBV_QPS_ERR) && !to_state(p.qp, IBV_QPS_ERR));
    flushed(p.a.cq, 1);
    nothing(p.a.cq, "after ERR twice");
}
