/* Shared receive queues. */
#include "suite.h"

enum { ENTRIES = 16 };

static struct ibv_srq *srq;

static struct ibv_srq *make_srq(struct end *end) {
    struct ibv_srq_init_attr init = { .attr = { .max_wr = ENTRIES, .max_sge = 2 } };
    struct ibv_srq *made = ibv_create_srq(end->pd, &init);
    LACKS(!made, "ibv_create_srq: %s", strerror(errno));
    CHECK(init.attr.max_wr >= ENTRIES && init.attr.max_sge >= 2, "capacities are smaller than asked");
    return made;
}

static int give_srq(struct ibv_srq *to, struct ibv_sge *sge, uint64_t id) {
    struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = sge, .num_sge = sge ? 1 : 0 };
    return ibv_post_srq_recv(to, &wr, &bad);
}

static struct ibv_qp *with_srq(struct end *end, struct ibv_srq *of) {
    struct ibv_qp_init_attr init = rc(end);
    init.srq = of;
    return make_qp(end, init);
}

/* Return a pair whose peer has a new SRQ. */
static struct pair shared(void) {
    struct pair p = ends();
    srq = make_srq(&p.b);
    p.qp = make_qp(&p.a, rc(&p.a));
    p.peer = with_srq(&p.b, srq);
    join(&p.a, p.qp, &p.b, p.peer, HOW);
    return p;
}

static void send_empty(struct ibv_qp *qp, struct pair *p, uint64_t id) {
    struct ibv_send_wr wr = request(IBV_WR_SEND, p, NULL, 0, id);
    NEED(!post(qp, &wr));
    succeeds(p->a.cq, id);
}

CASE(qps_share_receives, "IBTA 10.2.9: QPs take receive requests of their SRQ in its order") {
    struct pair p = shared();
    struct ibv_qp *qp = make_qp(&p.a, rc(&p.a)), *peer = with_srq(&p.b, srq);
    join(&p.a, qp, &p.b, peer, HOW);
    for (uint64_t id = 1; id <= 6; id++) NEED(!give_srq(srq, NULL, id));
    for (uint64_t id = 1; id <= 6; id++) {
        send_empty(id % 2 ? p.qp : qp, &p, id);
        struct ibv_wc wc = done(p.b.cq);
        CHECK(wc.wr_id == id && wc.qp_num == (id % 2 ? p.peer : peer)->qp_num, "receive %lu of QP %u",
              (unsigned long)wc.wr_id, wc.qp_num);
    }
}

CASE(receive_capacities_beside_srq_are_ignored,
     "ibv_create_qp(3): max_recv_wr and max_recv_sge are ignored with an SRQ") {
    struct pair p = ends();
    struct ibv_qp_init_attr init = rc(&p.b);
    init.srq = make_srq(&p.b);
    init.cap.max_recv_wr = init.cap.max_recv_sge = 1 << 30;
    struct ibv_qp *qp = ibv_create_qp(p.b.pd, &init);
    CHECK(qp, "ibv_create_qp: %s", strerror(errno));
}

CASE(own_receives_beside_srq_are_refused, "IBTA 10.2.9, ibv_post_recv(3): a QP with an SRQ has no receive queue") {
    struct pair p = shared();
    CHECK(give(p.peer, NULL, 0, 1), "ibv_post_recv succeeds on a QP with an SRQ");
}

CASE(full_srq_refuses, "ibv_post_srq_recv(3): ENOMEM when the queue is full, and bad_recv_wr is set") {
    shared();
    uint64_t posted = 0;
    int error = 0;
    while (!error && posted < 100000) {
        struct ibv_recv_wr *bad = NULL, wr = { .wr_id = posted };
        error = ibv_post_srq_recv(srq, &wr, &bad);
        CHECK(!error || bad == &wr, "bad_recv_wr is not the refused request");
        posted += !error;
    }
    CHECK(error == ENOMEM && posted >= ENTRIES, "%s after %lu requests", strerror(error), (unsigned long)posted);
}

CASE(srq_limit_is_one_event, "IBTA 10.2.9, ibv_modify_srq(3): SRQ_LIMIT_REACHED once, then the limit is 0") {
    struct pair p = shared();
    struct ibv_srq_attr attr = { .srq_limit = 3 };
    for (uint64_t id = 1; id <= 6; id++) NEED(!give_srq(srq, NULL, id));
    int error = ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
    LACKS(error == ENOSYS || error == EOPNOTSUPP, "ibv_modify_srq: %s", strerror(error));
    NEED(!error && !ibv_query_srq(srq, &attr));
    CHECK(attr.srq_limit == 3, "the limit reads as %u", attr.srq_limit);
    CHECK(no_event(&p.b), "an event with 6 requests and limit 3");
    for (uint64_t id = 1; id <= 5; id++) send_empty(p.qp, &p, id);
    CHECK(event_of(&p.b, IBV_EVENT_SRQ_LIMIT_REACHED) == srq, "no event SRQ_LIMIT_REACHED of this SRQ");
    CHECK(no_event(&p.b), "a second event");
    NEED(!ibv_query_srq(srq, &attr));
    CHECK(attr.srq_limit == 0, "the limit is %u after the event", attr.srq_limit);
}

CASE(srq_grows_as_claimed, "ibv_modify_srq(3): SRQ_MAX_WR, if device_cap_flags has SRQ_RESIZE") {
    struct pair p = shared();
    struct ibv_device_attr limits;
    NEED(!ibv_query_device(p.b.context, &limits));
    LACKS(!(limits.device_cap_flags & IBV_DEVICE_SRQ_RESIZE), "the device does not claim SRQ_RESIZE");
    struct ibv_srq_attr attr = { .max_wr = 4 * ENTRIES };
    for (uint64_t id = 1; id <= 4; id++) NEED(!give_srq(srq, NULL, id));
    NEED(!ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) && !ibv_query_srq(srq, &attr));
    CHECK(attr.max_wr >= 4 * ENTRIES, "max_wr is %u", attr.max_wr);
    for (uint64_t id = 5; id <= 4 * ENTRIES; id++) NEED(!give_srq(srq, NULL, id));
    for (uint64_t id = 1; id <= 8; id++) {
        send_empty(p.qp, &p, id);
        succeeds(p.b.cq, id);
    }
}

CASE(last_wqe_is_reported, "IBTA 10.3.1.7, 11.6.3.1: a QP with an SRQ that enters ERR raises Last WQE Reached") {
    struct pair p = shared();
    NEED(!to_state(p.peer, IBV_QPS_ERR));
    CHECK(event_of(&p.b, IBV_EVENT_QP_LAST_WQE_REACHED) == p.peer, "no event QP_LAST_WQE_REACHED of this QP");
}

CASE(srq_survives_a_failed_qp, "IBTA 10.2.9: requests that a failed QP did not take stay in the SRQ") {
    struct pair p = shared();
    for (uint64_t id = 1; id <= 3; id++) NEED(!give_srq(srq, NULL, id));
    send_empty(p.qp, &p, 1);
    succeeds(p.b.cq, 1);
    NEED(!to_state(p.peer, IBV_QPS_ERR));
    NEED(!ibv_destroy_qp(p.peer));
    struct ibv_qp *qp = make_qp(&p.a, rc(&p.a)), *peer = with_srq(&p.b, srq);
    join(&p.a, qp, &p.b, peer, HOW);
    for (uint64_t id = 2; id <= 3; id++) {
        send_empty(qp, &p, id);
        succeeds(p.b.cq, id);
    }
    nothing(p.b.cq, "after the last receive request");
}

CASE(srq_in_use_is_not_destroyed, "ibv_destroy_srq(3): EBUSY while a QP uses it") {
    struct pair p = shared();
    CHECK(ibv_destroy_srq(srq) == EBUSY, "an SRQ in use is not EBUSY");
    NEED(!ibv_destroy_qp(p.peer));
    CHECK(!ibv_destroy_srq(srq), "an SRQ without QPs is not destroyed");
}

CASE(srq_data_and_lengths, "IBTA 10.2.9: a receive request of an SRQ takes data as that of a QP") {
    struct pair p = shared();
    struct ibv_sge into = part(&p.b, 0, 4000), sge = part(&p.a, 0, 3333), shorter = part(&p.b, 0, 10);
    fill(p.a.memory, 3333, 8);
    NEED(!give_srq(srq, &into, 1) && !give_srq(srq, &shorter, 2));
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, &sge, 1, 3);
    NEED(!post(p.qp, &wr));
    struct ibv_wc wc = done(p.b.cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 3333 && filled(p.b.memory, 3333, 8), "the data differs");
    succeeds(p.a.cq, 3);
    NEED(!post(p.qp, &wr));
    wc = done(p.b.cq);
    CHECK(wc.wr_id == 2, "another receive request completes");
    STATUS(wc, IBV_WC_LOC_LEN_ERR);
    wc = done(p.a.cq);
    STATUS(wc, IBV_WC_REM_INV_REQ_ERR);
}
