/* States of a queue pair. */
#include "suite.h"

#define STATES "IBTA 10.3.1 (states of a QP); ibv_modify_qp(3)"

CASE(new_qp_is_in_reset, STATES) {
    struct pair p = ends();
    p.qp = make_qp(&p.a, rc(&p.a));
    CHECK(state_of(p.qp) == IBV_QPS_RESET, "a new QP is in state %d", state_of(p.qp));
}

CASE(missing_attributes_are_refused, STATES) {
    struct pair p = ends();
    struct ibv_qp *qp = make_qp(&p.a, rc(&p.a));
    CHECK(to_state(qp, IBV_QPS_INIT) == EINVAL, "INIT without port, P_Key and access is not EINVAL");
    NEED(!to_init(qp, EVERYTHING));
    CHECK(to_state(qp, IBV_QPS_RTR) == EINVAL, "RTR without a peer is not EINVAL");
    CHECK(state_of(qp) == IBV_QPS_INIT, "a refused transition changes the state");
}

CASE(skipped_states_are_refused, STATES) {
    struct pair p = ends();
    struct ibv_qp *qp = make_qp(&p.a, rc(&p.a));
    CHECK(to_rtr(qp, &p.a, &p.b, 1, HOW) == EINVAL, "RESET to RTR is not EINVAL");
    CHECK(to_rts(qp, HOW) == EINVAL, "RESET to RTS is not EINVAL");
    NEED(!to_init(qp, EVERYTHING));
    CHECK(to_rts(qp, HOW) == EINVAL, "INIT to RTS is not EINVAL");
    CHECK(state_of(qp) == IBV_QPS_INIT, "a refused transition changes the state");
}

CASE(wrong_current_state_is_refused, "ibv_modify_qp(3): cur_qp_state; IBTA 11.2") {
    struct pair p = connected(HOW);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };
    CHECK(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), "RTS to RTS as if from SQD succeeds");
}

CASE(impossible_port_is_refused, "ibv_modify_qp(3): EINVAL for an invalid value") {
    struct pair p = ends();
    struct ibv_qp *qp = make_qp(&p.a, rc(&p.a));
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 200 };
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == EINVAL,
          "port 200 is not EINVAL");
    CHECK(state_of(qp) == IBV_QPS_RESET, "a refused transition changes the state");
}

CASE(attributes_are_read_back, "ibv_query_qp(3)") {
    struct how how = HOW;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    how.psn = 0x123456;
    how.retry = 5;
    how.min_rnr = 12;
    how.peer_reads = 1;
    struct pair p = connected(how);
    NEED(!ibv_query_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_DEST_QPN | IBV_QP_TIMEOUT
                       | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MTU
                       | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CAP | IBV_QP_ACCESS_FLAGS, &init));
    CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == p.peer->qp_num, "state or peer differs");
    CHECK(attr.rq_psn == how.psn && attr.sq_psn == how.psn, "PSNs are %x and %x", attr.rq_psn, attr.sq_psn);
    CHECK(attr.timeout == how.timeout && attr.retry_cnt == 5 && attr.rnr_retry == 7 && attr.min_rnr_timer == 12,
          "timeout %d, retry_cnt %d, rnr_retry %d, min_rnr_timer %d", attr.timeout, attr.retry_cnt, attr.rnr_retry,
          attr.min_rnr_timer);
    CHECK(attr.max_dest_rd_atomic >= 1 && attr.path_mtu == (how.mtu < p.a.mtu ? how.mtu : p.a.mtu),
          "depth of reads or path MTU differs");
    CHECK(init.cap.max_send_wr >= DEPTH && init.cap.max_recv_wr >= DEPTH && init.cap.max_send_sge >= SGES
          && init.cap.max_recv_sge >= SGES, "capacities are smaller than asked");
    CHECK(init.send_cq == p.a.cq && init.qp_type == IBV_QPT_RC, "the CQ or the type differs");
}

CASE(address_is_read_back, "ibv_query_qp(3): ah_attr; ibv_create_ah(3): a flow label has 20 bits") {
    static const uint32_t labels[] = { 0, 1, 0x12345, 0xFFFFF };
    struct pair p = ends();
    struct ibv_sge from = part(&p.a, 0, 100);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    for (unsigned i = 0; i < 4; i++) {
        struct how how = HOW;
        how.flow_label = labels[i];
        p.qp = make_qp(&p.a, rc(&p.a));
        p.peer = make_qp(&p.b, rc(&p.b));
        join(&p.a, p.qp, &p.b, p.peer, how);
        NEED(!ibv_query_qp(p.qp, &attr, IBV_QP_AV, &init));
        struct ibv_global_route grh = attr.ah_attr.grh;
        CHECK(attr.ah_attr.is_global && !memcmp(&grh.dgid, &p.b.gid, 16), "the peer's GID differs");
        CHECK(grh.sgid_index == p.a.gid_index && attr.ah_attr.port_num == 1, "the GID's index or the port differs");
        CHECK(grh.flow_label == labels[i], "flow label %x reads as %x", labels[i], grh.flow_label);
        struct ibv_send_wr wr = write_of(&p, &from, i, IBV_SEND_SIGNALED);
        fill(p.a.memory, 100, i);
        NEED(!post(p.qp, &wr));
        succeeds(p.a.cq, i);
        CHECK(filled(p.b.memory, 100, i), "the data differs");
    }
}

CASE(sends_are_refused_before_rts,
     "IBTA 10.3.1.1 to 10.3.1.3, ibv_post_send(3): an immediate error in RESET, INIT and RTR, with bad_wr") {
    struct pair p = ends();
    struct ibv_qp *qp = make_qp(&p.a, rc(&p.a));
    struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
    CHECK(post(qp, &wr), "a send request is accepted in RESET");
    NEED(!to_init(qp, EVERYTHING));
    CHECK(post(qp, &wr), "a send request is accepted in INIT");
    NEED(!to_rtr(qp, &p.a, &p.b, qp->qp_num, HOW));
    CHECK(post(qp, &wr), "a send request is accepted in RTR");
    nothing(p.a.cq, "after refused requests");
}

CASE(receives_are_refused_in_reset, "IBTA 10.3.1.1: an immediate error in RESET; ibv_post_recv(3)") {
    struct pair p = ends();
    struct ibv_qp *qp = make_qp(&p.a, rc(&p.a));
    CHECK(give(qp, NULL, 0, 1), "a receive request is accepted in RESET");
}

CASE(receive_of_init_is_used, "IBTA 10.3.1.2: receive requests may be posted in INIT") {
    struct pair p = ends();
    struct ibv_sge sge = part(&p.b, 0, 8), from = part(&p.a, 0, 8);
    p.qp = make_qp(&p.a, rc(&p.a));
    p.peer = make_qp(&p.b, rc(&p.b));
    NEED(!to_init(p.peer, EVERYTHING) && !to_init(p.qp, EVERYTHING));
    NEED(!give(p.peer, &sge, 1, 3));
    NEED(!to_rtr(p.peer, &p.b, &p.a, p.qp->qp_num, HOW) && !to_rtr(p.qp, &p.a, &p.b, p.peer->qp_num, HOW));
    NEED(!to_rts(p.qp, HOW));
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, &from, 1, 4);
    fill(p.a.memory, 8, 1);
    NEED(!post(p.qp, &wr));
    succeeds(p.b.cq, 3);
    succeeds(p.a.cq, 4);
    CHECK(filled(p.b.memory, 8, 1), "the data differs");
}

CASE(rtr_answers_and_reports, "IBTA 10.3.1.3, 11.6.3.1: a QP in RTR receives, and raises Communication Established") {
    struct pair p = ends();
    struct ibv_sge from = part(&p.a, 0, 100);
    p.qp = make_qp(&p.a, rc(&p.a));
    p.peer = make_qp(&p.b, rc(&p.b));
    NEED(!to_init(p.peer, EVERYTHING) && !to_init(p.qp, EVERYTHING));
    NEED(!to_rtr(p.peer, &p.b, &p.a, p.qp->qp_num, HOW) && !to_rtr(p.qp, &p.a, &p.b, p.peer->qp_num, HOW));
    NEED(!to_rts(p.qp, HOW));
    struct ibv_send_wr wr = write_of(&p, &from, 4, IBV_SEND_SIGNALED);
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 4);
    CHECK(state_of(p.peer) == IBV_QPS_RTR, "the peer left RTR");
    CHECK(event_of(&p.b, IBV_EVENT_COMM_EST) == p.peer, "no event COMM_EST of the peer");
}

CASE(reset_forgets_requests, "IBTA 10.3.1.1: RESET removes all requests; no completion of them comes") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.b, 0, 8), from = part(&p.a, 0, 8);
    for (uint64_t id = 1; id <= 5; id++) NEED(!give(p.peer, &sge, 1, id));
    NEED(!to_state(p.peer, IBV_QPS_RESET) && !to_state(p.qp, IBV_QPS_RESET));
    join(&p.a, p.qp, &p.b, p.peer, HOW);
    NEED(!give(p.peer, &sge, 1, 77));
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, &from, 1, 78);
    NEED(!post(p.qp, &wr));
    succeeds(p.b.cq, 77);
    succeeds(p.a.cq, 78);
    nothing(p.b.cq, "after RESET");
}

CASE(every_state_leads_to_error, STATES) {
    struct pair p = ends();
    for (int state = IBV_QPS_RESET; state <= IBV_QPS_RTS; state++) {
        struct ibv_qp *qp = make_qp(&p.a, rc(&p.a));
        if (state >= IBV_QPS_INIT) NEED(!to_init(qp, EVERYTHING));
        if (state >= IBV_QPS_RTR) NEED(!to_rtr(qp, &p.a, &p.b, qp->qp_num, HOW));
        if (state >= IBV_QPS_RTS) NEED(!to_rts(qp, HOW));
        CHECK(state_of(qp) == (enum ibv_qp_state)state, "the state is not %d", state);
        if (state > IBV_QPS_RESET) {
            NEED(!to_state(qp, IBV_QPS_ERR));
            CHECK(state_of(qp) == IBV_QPS_ERR, "the state is not ERR");
            CHECK(to_rts(qp, HOW), "ERR to RTS is accepted");
        }
        NEED(!to_state(qp, IBV_QPS_RESET));
        NEED(!ibv_destroy_qp(qp));
    }
}

CASE(drained_queue_holds_requests, "IBTA 10.3.1.5: SQD starts no request, and reports Send Queue Drained") {
    struct pair p = connected(HOW);
    struct ibv_sge from = part(&p.a, 0, 100);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
    int error = ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
    LACKS(error, "the transition to SQD: %s", strerror(error));
    CHECK(event_of(&p.a, IBV_EVENT_SQ_DRAINED) == p.qp, "no event SQ_DRAINED of this QP");
    struct ibv_send_wr wr = write_of(&p, &from, 4, IBV_SEND_SIGNALED);
    NEED(!post(p.qp, &wr));
    settle(&p);
    nothing(p.a.cq, "in SQD");
    NEED(!to_state(p.qp, IBV_QPS_RTS));
    succeeds(p.a.cq, 4);
}

CASE(psn_has_24_bits, "IBTA 9.2 (BTH): a PSN has 24 bits; others are ignored or refused") {
    struct how high = HOW;
    struct pair p = ends();
    struct ibv_sge from = part(&p.a, 0, 5000);
    p.qp = make_qp(&p.a, rc(&p.a));
    p.peer = make_qp(&p.b, rc(&p.b));
    high.psn |= 0xAB000000;
    NEED(!to_init(p.qp, EVERYTHING) && !to_init(p.peer, EVERYTHING));
    int error = to_rtr(p.qp, &p.a, &p.b, p.peer->qp_num, high);
    CHECK(!error || error == EINVAL, "a PSN of 32 bits: %s", strerror(error));
    if (error) return;
    NEED(!to_rtr(p.peer, &p.b, &p.a, p.qp->qp_num, HOW) && !to_rts(p.qp, high) && !to_rts(p.peer, HOW));
    struct ibv_send_wr wr = write_of(&p, &from, 4, IBV_SEND_SIGNALED);
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 4);
}

CASE(psn_wraps, "IBTA 9.7.1: PSNs are counted modulo 2^24") {
    struct how how = HOW;
    how.psn = 0xFFFFF9;
    struct pair p = connected(how);
    struct ibv_sge from = part(&p.a, 0, 5 * MTU), into = part(&p.b, 0, 5 * MTU);
    fill(p.a.memory, 5 * MTU, 3);
    for (uint64_t id = 1; id <= 6; id++) {
        struct ibv_send_wr wr = request(id % 3 ? IBV_WR_SEND : IBV_WR_RDMA_READ, &p, &from, 1, id);
        if (id % 3) NEED(!give(p.peer, &into, 1, id));
        NEED(!post(p.qp, &wr));
        succeeds(p.a.cq, id);
        if (id % 3) succeeds(p.b.cq, id);
    }
    CHECK(filled(p.b.memory, 5 * MTU, 3), "the data differs");
}
