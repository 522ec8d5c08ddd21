/* Functions of the daemon: objects are created, changed and destroyed here. See engine.py for their use. */
#include "direct.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Take the lock, also if this thread has it; the engine's thread lets callers that want it go first. */
PUBLIC void weft_direct_lock(struct fabric *fabric) {
    __atomic_add_fetch(&fabric->wanted, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&fabric->lock);
    __atomic_sub_fetch(&fabric->wanted, 1, __ATOMIC_SEQ_CST);
}

/* Release the lock, and wake up the thread if something that it may wait for has changed. */
PUBLIC void weft_direct_unlock(struct fabric *fabric) {
    if (fabric->changed && fabric->sleeping) eventfd_write(fabric->kick, 1);
    pthread_mutex_unlock(&fabric->lock);
}

/* Let a descriptor wake up the thread; return false without memory. */
static int watch(struct fabric *fabric, int file) {
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };
    return epoll_ctl(fabric->epoll, EPOLL_CTL_ADD, file, &event) == 0;
}

/* Return a new fabric whose thread runs, or NULL. `news` is an event descriptor for notices. */
PUBLIC struct fabric *weft_direct_start(int news, uint64_t spin_ns) {
    struct fabric *fabric = calloc(1, sizeof *fabric);
    if (!fabric) return NULL;
    *fabric = (struct fabric){ .lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, .news = news,
        .spin_ns = spin_ns, .active_end = &fabric->active, .kick = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
        .epoll = epoll_create1(EPOLL_CLOEXEC), .bounce = aligned_alloc(4096, 64 << 10) };
    if (!fabric->bounce || !watch(fabric, fabric->kick) || pthread_create(&fabric->thread, NULL, run, fabric)) {
        close(fabric->kick);
        close(fabric->epoll);
        free(fabric->bounce);
        free(fabric);
        return NULL;
    }
    return fabric;
}

/* End the thread; no object is left. */
PUBLIC void weft_direct_stop(struct fabric *fabric) {
    weft_direct_lock(fabric);
    fabric->stop = fabric->changed = 1;
    weft_direct_unlock(fabric);
    pthread_join(fabric->thread, NULL);
    for (struct host *host = fabric->hosts, *next; host; host = next) {
        next = host->next;
        free(host->qps);
        free(host->regions);
        free(host);
    }
    close(fabric->kick);
    close(fabric->epoll);
    free(fabric->notices);
    free(fabric->bounce);
    free(fabric);
}

/* Move up to `most` notices; return their number. */
PUBLIC size_t weft_direct_notices(struct fabric *fabric, struct notice *to, size_t most) {
    weft_direct_lock(fabric);
    size_t count = fabric->notice_count < most ? fabric->notice_count : most;
    memcpy(to, fabric->notices, count * sizeof *to);
    fabric->notice_count -= count;
    memmove(fabric->notices, fabric->notices + count, fabric->notice_count * sizeof *to);
    pthread_mutex_unlock(&fabric->lock);
    return count;
}

/* Return the number of a copy that has begun and not ended, or 0. It may block: this function takes no lock. */
PUBLIC uint64_t weft_direct_copying(const struct fabric *fabric, uint64_t *tag) {
    uint64_t number = LOAD(fabric->copies);
    *tag = fabric->copies_of;
    return number & 1 ? number : 0;
}

/* The functions below are called with the lock. Those that create return NULL without memory. */

/* Get messages and bytes that a host sent, then those that it received. */
PUBLIC void weft_direct_traffic(const struct host *host, struct traffic found[2]) {
    found[0] = host->sent;
    found[1] = host->received;
}

/* `qp_slots` is a power of two: QP numbers of the card differ in their lowest bits. */
PUBLIC struct host *weft_direct_host(struct fabric *fabric, uint32_t ip, uint32_t qp_slots) {
    struct host *host = calloc(1, sizeof *host);
    if (!host || !(host->qps = calloc(qp_slots, sizeof *host->qps))) {
        free(host);
        return NULL;
    }
    host->fabric = fabric;
    host->ip = ip;
    host->qp_mask = qp_slots - 1;
    host->next = fabric->hosts;
    fabric->hosts = host;
    return host;
}

static struct qp **place_of(struct host *host, uint32_t number, int datagrams) {
    return datagrams ? &host->datagram_qps[number % DATAGRAM_QPS] : &host->qps[number & host->qp_mask];
}

PUBLIC struct client *weft_direct_client(struct host *host, uint64_t tag, void *bell, int doorbell, int wake) {
    struct client *client = calloc(1, sizeof *client);
    if (!client || !watch(host->fabric, doorbell)) {
        free(client);
        return NULL;
    }
    *client = (struct client){ .host = host, .next = host->fabric->clients, .bell = bell, .tag = tag,
                               .doorbell = doorbell, .wake = wake };
    host->fabric->clients = client;
    host->fabric->changed = 1; /* a thread that sleeps has not asked this client for doorbells */
    return client;
}

PUBLIC void weft_direct_region_close(struct host *host, uint32_t index) {
    if (index >= host->region_count) return;
    host->fabric->window.qp = host->fabric->merged.qp = NULL;
    if (host->regions[index] && host->regions[index]->gone) host->fabric->changed = 1;
    free(host->regions[index]);
    host->regions[index] = NULL;
}

PUBLIC void weft_direct_client_close(struct client *client) {
    struct client **at = &client->host->fabric->clients;
    while (*at != client) at = &(*at)->next;
    *at = client->next;
    epoll_ctl(client->host->fabric->epoll, EPOLL_CTL_DEL, client->doorbell, NULL);
    /* Objects are left if the daemon could not destroy them: nothing may use them any more. */
    for (struct qp *qp = client->qps; qp; qp = qp->next) {
        leave(qp);
        weft_direct_qp_leave(qp, 0);
        *place_of(client->host, qp->number, qp->payload_max > 0) = NULL;
    }
    for (uint32_t n = 0; n < client->host->region_count; n++)
        if (client->host->regions[n] && client->host->regions[n]->client == client)
            weft_direct_region_close(client->host, n);
    free(client);
}

PUBLIC const char *weft_direct_why(const struct client *client) { return client->why; }

/* Set the region of an index; return 0 without memory. */
PUBLIC int weft_direct_region(struct client *client, uint32_t index, uint32_t lkey, uint32_t rkey, uint32_t pd,
                              uint32_t access, uint64_t va, uint64_t length, uint64_t offset, int file, int process) {
    struct host *host = client->host;
    host->fabric->window.qp = host->fabric->merged.qp = NULL;
    if (index >= host->region_count) {
        uint32_t count = index + 1 > 2 * host->region_count ? index + 1 : 2 * host->region_count;
        struct region **more = realloc(host->regions, count * sizeof *more);
        if (!more) return 0;
        memset(more + host->region_count, 0, (count - host->region_count) * sizeof *more);
        host->regions = more;
        host->region_count = count;
    }
    if (!host->regions[index] && !(host->regions[index] = malloc(sizeof(struct region)))) return 0;
    *host->regions[index] = (struct region){ .client = client, .file = file, .process = process, .index = index,
        .lkey = lkey, .rkey = rkey, .pd = pd, .access = access, .va = va, .length = length, .offset = offset };
    return 1;
}

static struct ring ring_of(void *at, uint32_t slots, uint32_t slot_bytes) {
    struct weft_ring *head = at;
    return (struct ring){ .head = head, .first = (uint8_t *)(head + 1), .slots = slots, .slot_bytes = slot_bytes };
}

PUBLIC struct cq *weft_direct_cq(struct client *client, uint64_t tag, uint64_t user, int channel, void *ring,
                                 uint32_t slots, uint32_t slot_bytes) {
    struct cq *cq = malloc(sizeof *cq);
    if (cq) *cq = (struct cq){ .client = client, .tag = tag, .user = user, .channel = channel,
                               .ring = ring_of(ring, slots, slot_bytes) };
    return cq;
}

/* Replace the ring of a queue by one that contains its completions up to `own`. */
PUBLIC void weft_direct_cq_ring(struct cq *cq, void *ring, uint32_t slots, uint32_t slot_bytes, uint32_t own) {
    cq->ring = ring_of(ring, slots, slot_bytes);
    cq->ring.own = own;
    for (struct qp *qp = cq->client->qps; qp; qp = qp->next)
        if (qp->send_cq == cq) memset(qp->reported, 0, qp->sends.slots * sizeof *qp->reported); /* of other indices */
}

PUBLIC uint32_t weft_direct_cq_own(const struct cq *cq) { return cq->ring.own; }
PUBLIC int weft_direct_cq_overrun(const struct cq *cq) { return cq->overrun; }
PUBLIC void weft_direct_cq_close(struct cq *cq) { free(cq); }

PUBLIC struct receives *weft_direct_srq(struct client *client, uint64_t tag, uint32_t sges, void *ring, uint32_t slots,
                                        uint32_t slot_bytes) {
    struct receives *srq = malloc(sizeof *srq);
    if (srq) *srq = (struct receives){ .client = client, .tag = tag, .sges = sges,
                                       .ring = ring_of(ring, slots, slot_bytes) };
    return srq;
}

/* Replace the ring by one with the requests that are left, from slot 0 on. */
PUBLIC void weft_direct_srq_ring(struct receives *srq, void *ring, uint32_t slots, uint32_t slot_bytes) {
    srq->ring = ring_of(ring, slots, slot_bytes);
}

PUBLIC uint32_t weft_direct_srq_own(const struct receives *srq) { return srq->ring.own; }
PUBLIC uint32_t weft_direct_srq_filled(struct receives *srq) { return ring_filled(&srq->ring, srq->client); }
PUBLIC uint32_t weft_direct_srq_limit(const struct receives *srq) { return srq->limit; }
PUBLIC void weft_direct_srq_set_limit(struct receives *srq, uint32_t limit) { srq->limit = limit; }
PUBLIC void weft_direct_srq_close(struct receives *srq) { free(srq); }

/* Return a QP in RESET; without an `srq` it has the ring `receives`. `payload_max` is 0 for RC. */
PUBLIC struct qp *weft_direct_qp(struct client *client, uint64_t tag, uint32_t number, uint32_t pd, struct cq *send_cq,
                                 struct cq *recv_cq, struct receives *srq, uint32_t max_send_wr, uint32_t max_send_sge,
                                 uint32_t max_inline, uint32_t max_recv_sge, uint32_t payload_max) {
    struct host *host = client->host;
    struct qp **place = place_of(host, number, payload_max > 0);
    struct qp *qp = max_send_sge <= SGES_MAX && max_recv_sge <= SGES_MAX && max_inline <= INLINE_MAX
                    && payload_max <= DATAGRAM_MAX && !*place ? calloc(1, sizeof *qp) : NULL;
    if (!qp) return NULL;
    *qp = (struct qp){ .client = client, .tag = tag, .number = number, .pd = pd, .send_cq = send_cq, .recv_cq = recv_cq,
                       .max_send_wr = max_send_wr, .max_send_sge = max_send_sge, .max_inline = max_inline,
                       .payload_max = payload_max, .own = { .client = client, .sges = max_recv_sge } };
    qp->receives = srq ? srq : &qp->own;
    *place = qp;
    return qp;
}

/* Give a new QP its rings: from now on its requests are executed. Return 0 without memory. */
PUBLIC int weft_direct_qp_rings(struct qp *qp, void *sends, uint32_t send_slots, uint32_t send_bytes, void *receives,
                                 uint32_t recv_slots, uint32_t recv_bytes) {
    if (!(qp->reported = calloc(send_slots, sizeof *qp->reported))) return 0;
    qp->sends = ring_of(sends, send_slots, send_bytes);
    qp->own.ring = ring_of(receives, recv_slots, recv_bytes);
    qp->next = qp->client->qps;
    qp->client->qps = qp;
    return 1;
}

/* Set the attributes. A QP in ERR stays there. */
PUBLIC void weft_direct_qp_modify(struct qp *qp, const struct attributes *attr) {
    uint32_t before = qp->attr.state;
    qp->attr = *attr;
    if (before < IBV_QPS_RTR && attr->state >= IBV_QPS_RTR) {
        struct host *host = qp->client->host->fabric->hosts;
        while (host && host->ip != attr->peer_ip) host = host->next;
        qp->peer_host = host;
        qp->expected_psn = attr->expected_psn;
        qp->heard = 0;
    }
    if (before < IBV_QPS_RTS && attr->state >= IBV_QPS_RTS) qp->send_psn = attr->send_psn;
    qp->waiting = NOT_WAITING; /* with the new time limits, from now on */
    qp->client->host->fabric->changed = 1;
    if (attr->state == IBV_QPS_RTS) qp->draining = 0;
    if (attr->state == IBV_QPS_SQD && !qp->busy) drained(qp);
    activate(qp);
}

/* Begin to drain; SQD is set afterwards. */
PUBLIC void weft_direct_qp_drain(struct qp *qp, int notify) {
    qp->draining = 1;
    qp->notify_drained = notify;
}

/* Execute the requests that were posted before this call. */
PUBLIC void weft_direct_qp_run(struct qp *qp) { execute(qp, &(size_t){ (size_t)qp->sends.slots << 10 }); }
PUBLIC void weft_direct_qp_fail(struct qp *qp, uint32_t status) { fail(qp, status); }
PUBLIC int weft_direct_qp_error(const struct qp *qp) { return qp->error; }
PUBLIC int weft_direct_qp_send_error(const struct qp *qp) { return qp->send_error; }
PUBLIC void weft_direct_qp_resume(struct qp *qp) { qp->send_error = 0; }
PUBLIC int weft_direct_qp_draining(const struct qp *qp) { return qp->draining; }

/* Return to RESET: requests and receives that are posted are dropped. */
PUBLIC void weft_direct_qp_reset(struct qp *qp) {
    leave(qp);
    memset(&qp->attr, 0, sizeof qp->attr);
    qp->peer_host = NULL;
    weft_direct_qp_leave(qp, 0);
    qp->error = qp->send_error = qp->draining = qp->heard = qp->last_wqe = qp->busy = qp->taken = 0;
    qp->waiting = NOT_WAITING;
    memset(qp->reported, 0, qp->sends.slots * sizeof *qp->reported);
    struct ring *rings[] = { &qp->sends, &qp->own.ring };
    for (int n = 0; n < 2; n++) {
        rings[n]->own = LOAD(rings[n]->head->prod) - 1;
        ring_took(rings[n]);
    }
}

PUBLIC void weft_direct_qp_close(struct qp *qp) {
    struct host *host = qp->client->host;
    leave(qp);
    weft_direct_qp_leave(qp, 0);
    *place_of(host, qp->number, qp->payload_max > 0) = NULL;
    struct qp **at = &qp->client->qps;
    while (*at && *at != qp) at = &(*at)->next;
    if (*at) *at = qp->next;
    free(qp->reported);
    free(qp);
}
