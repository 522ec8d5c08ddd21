/* Receivers that are not ready, peers that do not answer. */
#include "suite.h"

enum { TIMEOUT = 4 }; /* 66 us: milliseconds of RTL take minutes to simulate */

CASE(rnr_retry_0_fails_at_once, "IBTA 9.7.5.2.8, ibv_modify_qp(3): rnr_retry 0: RNR Retry Counter Exceeded") {
    struct how how = HOW;
    how.rnr_retry = 0;
    struct pair p = connected(how);
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, NULL, 0, 1);
    NEED(!post(p.qp, &wr));
    struct ibv_wc wc = done(p.a.cq);
    STATUS(wc, IBV_WC_RNR_RETRY_EXC_ERR);
    CHECK(fails(p.qp), "the QP stays in state %d", state_of(p.qp));
    CHECK(state_of(p.peer) == IBV_QPS_RTS, "the peer leaves RTS");
}

CASE(rnr_retry_is_exceeded, "IBTA 9.7.5.2.8: after rnr_retry times the QP fails; later requests are flushed") {
    struct how how = HOW;
    how.rnr_retry = 2;
    struct pair p = connected(how);
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, &p, NULL, 0, 1);
    NEED(!post(p.qp, &wr));
    wr.wr_id = 2;
    struct ibv_wc wc = done(p.a.cq);
    STATUS(wc, IBV_WC_RNR_RETRY_EXC_ERR);
    NEED(!post(p.qp, &wr));
    wc = done(p.a.cq);
    STATUS(wc, IBV_WC_WR_FLUSH_ERR);
}

CASE(rnr_retry_7_waits, "ibv_modify_qp(3): rnr_retry 7 retries without end; the receive request may come later") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 3000), into = part(&p.b, 0, 3000);
    fill(p.a.memory, 3000, 6);
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, &sge, 1, 1);
    NEED(!post(p.qp, &wr));
    settle(&p);
    nothing(p.a.cq, "without a receive request");
    NEED(!give(p.peer, &into, 1, 2));
    succeeds(p.b.cq, 2);
    succeeds(p.a.cq, 1);
    CHECK(filled(p.b.memory, 3000, 6), "the data differs");
}

CASE(rnr_keeps_the_order, "IBTA 9.7.5.2.8: requests after one that waits for a receive request wait, too") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 100);
    memset(p.a.memory, 0x22, 100);
    struct ibv_send_wr send = request(IBV_WR_SEND, &p, NULL, 0, 1), wr = write_of(&p, &sge, 2, IBV_SEND_SIGNALED);
    NEED(!post(p.qp, &send) && !post(p.qp, &wr));
    settle(&p);
    nothing(p.a.cq, "without a receive request");
    for (uint64_t id = 10; id < 13; id++) NEED(!give(p.peer, NULL, 0, id));
    succeeds(p.a.cq, 1);
    succeeds(p.a.cq, 2);
    succeeds(p.b.cq, 10);
    CHECK(all(p.b.memory, 100, 0x22), "the data of the write differs");
    settle(&p);
    nothing(p.b.cq, "a send takes one receive request");
}

CASE(absent_peer_exceeds_the_retries, "IBTA 9.9.2, ibv_poll_cq(3): Transport Retry Counter Exceeded") {
    struct how how = HOW;
    how.timeout = TIMEOUT;
    how.retry = 1;
    struct pair p = connected(how);
    struct ibv_sge sge = part(&p.a, 0, 100);
    struct ibv_send_wr wr = write_of(&p, &sge, 1, IBV_SEND_SIGNALED);
    NEED(!ibv_destroy_qp(p.peer));
    NEED(!post(p.qp, &wr));
    wr.wr_id = 2;
    NEED(!post(p.qp, &wr));
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.wr_id == 1, "the second request fails first");
    STATUS(wc, IBV_WC_RETRY_EXC_ERR);
    wc = done(p.a.cq);
    CHECK(wc.wr_id == 2, "a completion is missing");
    STATUS(wc, IBV_WC_WR_FLUSH_ERR);
}

CASE(peer_in_error_does_not_answer,
     "IBTA 10.3.1.7: a QP in ERR discards packets; the requester's retries are exceeded") {
    struct how how = HOW;
    how.timeout = TIMEOUT;
    how.retry = 1;
    struct pair p = connected(how);
    struct ibv_sge sge = part(&p.a, 0, 100);
    struct ibv_send_wr wr = write_of(&p, &sge, 1, IBV_SEND_SIGNALED);
    memset(p.a.memory, 0x22, 100);
    NEED(!to_state(p.peer, IBV_QPS_ERR) && !post(p.qp, &wr));
    struct ibv_wc wc = done(p.a.cq);
    STATUS(wc, IBV_WC_RETRY_EXC_ERR);
    CHECK(all(p.b.memory, 100, 0), "a QP in ERR writes");
}

CASE(qp_of_another_connection_is_ignored,
     "IBTA 9.7.1, 9.9: packets with a PSN far from the expected one are no requests") {
    struct how how = HOW, other = HOW;
    how.timeout = TIMEOUT;
    how.retry = 1;
    other.psn = how.psn + 0x400000;
    struct pair p = ends();
    p.qp = make_qp(&p.a, rc(&p.a));
    p.peer = make_qp(&p.b, rc(&p.b));
    NEED(!to_init(p.qp, EVERYTHING) && !to_init(p.peer, EVERYTHING));
    NEED(!to_rtr(p.qp, &p.a, &p.b, p.peer->qp_num, how) && !to_rtr(p.peer, &p.b, &p.a, p.qp->qp_num, other));
    NEED(!to_rts(p.qp, how) && !to_rts(p.peer, other));
    struct ibv_sge sge = part(&p.a, 0, 100);
    struct ibv_send_wr wr = write_of(&p, &sge, 1, IBV_SEND_SIGNALED);
    memset(p.a.memory, 0x22, 100);
    NEED(!post(p.qp, &wr));
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.status != IBV_WC_SUCCESS, "a request with a wrong PSN succeeds");
    CHECK(all(p.b.memory, 100, 0), "a request with a wrong PSN writes");
}

CASE(minimal_rnr_timers_are_valid, "IBTA table 45: codes 0 (655.36 ms) to 31 (491.52 ms)") {
    struct pair p = ends();
    struct how how = HOW;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    for (uint8_t code = 0; code < 32; code++) {
        struct ibv_qp *qp = make_qp(&p.a, rc(&p.a));
        how.min_rnr = code;
        NEED(!to_init(qp, EVERYTHING) && !to_rtr(qp, &p.a, &p.b, qp->qp_num, how));
        NEED(!ibv_query_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER, &init));
        CHECK(attr.min_rnr_timer == code, "min_rnr_timer %d reads as %d", code, attr.min_rnr_timer);
        NEED(!ibv_destroy_qp(qp));
    }
}
