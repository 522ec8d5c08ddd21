/* Completion events. */
#include "suite.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#define ARM "IBTA 10.8.7, ibv_req_notify_cq(3): one event for each request for notification"
enum { SOON_MS = 20, WAIT_MS = 20000 };

static struct ibv_comp_channel *channel;

static struct ibv_cq *make_cq(struct end *end, void *mine) {
    if (!channel) {
        channel = ibv_create_comp_channel(end->context);
        NEED(channel);
        NEED(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
    }
    struct ibv_cq *cq = ibv_create_cq(end->context, DEPTH, mine, channel, 0);
    NEED(cq);
    return cq;
}

static int comes(int limit_ms) {
    struct pollfd file = { .fd = channel->fd, .events = POLLIN };
    return poll(&file, 1, limit_ms) == 1;
}

/* Take an event, which must be there soon, and acknowledge it. */
static struct ibv_cq *take(void **mine) {
    struct ibv_cq *cq;
    void *context;
    CHECK(comes(WAIT_MS), "no event");
    NEED(!ibv_get_cq_event(channel, &cq, &context));
    ibv_ack_cq_events(cq, 1);
    if (mine) *mine = context;
    return cq;
}

/* Return a pair whose peer receives into a CQ with the channel. */
static struct pair notified(void) {
    struct pair p = ends();
    struct ibv_qp_init_attr init = rc(&p.b);
    p.b.cq = init.recv_cq = make_cq(&p.b, &p);
    p.qp = make_qp(&p.a, rc(&p.a));
    p.peer = make_qp(&p.b, init);
    join(&p.a, p.qp, &p.b, p.peer, HOW);
    return p;
}

static void send_one(struct pair *p, unsigned flags) {
    struct ibv_send_wr wr = request(IBV_WR_SEND, p, NULL, 0, 1);
    wr.send_flags |= flags;
    NEED(!give(p->peer, NULL, 0, 2) && !post(p->qp, &wr));
    succeeds(p->a.cq, 1);
    succeeds(p->b.cq, 2);
}

CASE(armed_queue_gives_one_event, ARM) {
    struct pair p = notified();
    NEED(!ibv_req_notify_cq(p.b.cq, 0));
    send_one(&p, 0);
    CHECK(take(NULL) == p.b.cq, "the event is another CQ's");
    send_one(&p, 0);
    send_one(&p, 0);
    CHECK(!comes(SOON_MS), "a second event for one arming");
}

CASE(unarmed_queue_gives_no_event, ARM) {
    struct pair p = notified();
    send_one(&p, 0);
    CHECK(!comes(SOON_MS), "an event without arming");
}

CASE(arming_twice_is_one_event, ARM) {
    struct pair p = notified();
    NEED(!ibv_req_notify_cq(p.b.cq, 0) && !ibv_req_notify_cq(p.b.cq, 0));
    send_one(&p, 0);
    take(NULL);
    send_one(&p, 0);
    CHECK(!comes(SOON_MS), "a second event");
}

CASE(no_wake_up_is_lost, "ibv_get_cq_event(3): arm, poll, wait: an event comes for what arrives after the arming") {
    struct pair p = notified();
    struct ibv_wc wc;
    for (int i = 0; i < 50; i++) {
        struct ibv_send_wr wr = request(IBV_WR_SEND, &p, NULL, 0, 1);
        NEED(!give(p.peer, NULL, 0, 2) && !ibv_req_notify_cq(p.b.cq, 0));
        NEED(!post(p.qp, &wr));
        CHECK(comes(WAIT_MS), "message %d: no event after the arming", i);
        take(NULL);
        CHECK(ibv_poll_cq(p.b.cq, 1, &wc) == 1, "message %d: an event without a completion", i);
        succeeds(p.a.cq, 1);
    }
}

CASE(solicited_arming_ignores_other_messages,
     "IBTA 9.2.3, ibv_req_notify_cq(3): solicited_only: a solicited message, or an error") {
    struct pair p = notified();
    NEED(!ibv_req_notify_cq(p.b.cq, 1));
    send_one(&p, 0);
    CHECK(!comes(SOON_MS), "an event for a message that is not solicited");
    send_one(&p, IBV_SEND_SOLICITED);
    CHECK(take(NULL) == p.b.cq, "the event is another CQ's");
    NEED(!ibv_req_notify_cq(p.b.cq, 1) && !give(p.peer, NULL, 0, 9) && !to_state(p.peer, IBV_QPS_ERR));
    CHECK(comes(WAIT_MS), "no event for an error");
}

CASE(solicited_immediate_gives_an_event, "IBTA 9.2.3: a WRITE with immediate may be solicited") {
    struct pair p = notified();
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, &p, NULL, 0, 1);
    wr.send_flags |= IBV_SEND_SOLICITED;
    NEED(!ibv_req_notify_cq(p.b.cq, 1) && !give(p.peer, NULL, 0, 2) && !post(p.qp, &wr));
    CHECK(comes(WAIT_MS), "no event");
}

CASE(queues_of_one_channel, "ibv_get_cq_event(3): the event names its CQ and that CQ's context") {
    struct pair p = ends();
    struct ibv_cq *cqs[2];
    struct ibv_qp *qps[2], *peers[2];
    int marks[2];
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = rc(&p.b);
        init.recv_cq = cqs[i] = make_cq(&p.b, &marks[i]);
        qps[i] = make_qp(&p.a, rc(&p.a));
        peers[i] = make_qp(&p.b, init);
        join(&p.a, qps[i], &p.b, peers[i], HOW);
        NEED(!ibv_req_notify_cq(cqs[i], 0));
    }
    for (int i = 1; i >= 0; i--) {
        void *mine;
        struct ibv_send_wr wr = request(IBV_WR_SEND, &p, NULL, 0, 1);
        NEED(!give(peers[i], NULL, 0, 2) && !post(qps[i], &wr));
        CHECK(take(&mine) == cqs[i] && mine == &marks[i], "the event names another CQ or context");
        succeeds(cqs[i], 2);
    }
}

CASE(empty_channel_is_eagain, "ibv_get_cq_event(3), fcntl(2): EAGAIN from an empty channel that does not block") {
    struct pair p = notified();
    struct ibv_cq *cq;
    void *mine;
    (void)p;
    CHECK(ibv_get_cq_event(channel, &cq, &mine) == -1 && errno == EAGAIN, "an empty channel: %s", strerror(errno));
}

static int destroyed;

static void *destroy(void *cq) {
    __atomic_store_n(&destroyed, 1, __ATOMIC_SEQ_CST);
    int error = ibv_destroy_cq(cq);
    __atomic_store_n(&destroyed, error ? 3 : 2, __ATOMIC_SEQ_CST);
    return NULL;
}

CASE(destroying_waits_for_acknowledgements,
     "ibv_ack_cq_events(3), ibv_destroy_cq(3): it waits until all events are acknowledged") {
    struct pair p = notified();
    struct ibv_cq *cq;
    void *mine;
    pthread_t thread;
    NEED(!ibv_req_notify_cq(p.b.cq, 0));
    send_one(&p, 0);
    CHECK(comes(WAIT_MS), "no event");
    NEED(!ibv_get_cq_event(channel, &cq, &mine));
    NEED(!ibv_destroy_qp(p.peer));
    NEED(!pthread_create(&thread, NULL, destroy, cq));
    while (!__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST)) {}
    CHECK(!comes(SOON_MS), "a further event");
    CHECK(__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) == 1, "it does not wait");
    ibv_ack_cq_events(cq, 1);
    pthread_join(thread, NULL);
    CHECK(destroyed == 2, "ibv_destroy_cq fails");
}

CASE(send_completions_give_events, ARM) {
    struct pair p = ends();
    struct ibv_qp_init_attr init = rc(&p.a);
    init.send_cq = make_cq(&p.a, NULL);
    p.qp = make_qp(&p.a, init);
    p.peer = make_qp(&p.b, rc(&p.b));
    join(&p.a, p.qp, &p.b, p.peer, HOW);
    struct ibv_sge sge = part(&p.a, 0, 100);
    struct ibv_send_wr quiet = write_of(&p, &sge, 1, 0), wr = write_of(&p, &sge, 2, IBV_SEND_SIGNALED);
    NEED(!ibv_req_notify_cq(init.send_cq, 0) && !post(p.qp, &quiet));
    settle(&p);
    CHECK(!comes(SOON_MS), "an event for an unsignaled request");
    NEED(!post(p.qp, &wr));
    CHECK(take(NULL) == init.send_cq, "the event is another CQ's");
    succeeds(init.send_cq, 2);
}
