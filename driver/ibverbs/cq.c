/* Completion queues and their channels. */
#include "weft.h"

#include <sched.h>
#include <unistd.h>

/* Consecutive empty polls before one sleeps. In wall-clock time only one of this number does: they take some 3 us each,
 * and a program that does nothing else takes less than 5 % of a processor. In simulated time all later ones do.
 * One of YIELD gives the processor to another thread while the daemon is awake: its thread may be ready to run on this
 * processor only. */
#define PATIENCE 400
#define YIELD 32
#define SIMULATED_PATIENCE 16

PUBLIC struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    struct weft_handle answer;
    struct channel *channel = calloc(1, sizeof *channel);
    int file;
    errno = channel ? weft_call(context_of(context), (struct call){ .opcode = WEFT_CREATE_CHANNEL, .answer = &answer,
        .answer_size = sizeof answer, .files = &file, .count = 1 }) : ENOMEM;
    if (errno) {
        free(channel);
        return NULL;
    }
    channel->handle = answer.handle;
    channel->ibv = (struct ibv_comp_channel){ .context = context, .fd = file };
    return &channel->ibv;
}

PUBLIC int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv) {
    struct channel *channel = container(ibv, struct channel, ibv);
    pthread_mutex_lock(&ibv->context->mutex);
    int error = ibv->refcnt ? EBUSY : weft_destroy(context_of(ibv->context), WEFT_KIND_CHANNEL, channel->handle);
    pthread_mutex_unlock(&ibv->context->mutex);
    if (error) return error;
    close(ibv->fd);
    free(channel);
    return 0;
}

static void count_user(struct ibv_comp_channel *channel, int change) {
    if (!channel) return;
    pthread_mutex_lock(&channel->context->mutex);
    channel->refcnt += change;
    pthread_mutex_unlock(&channel->context->mutex);
}

struct cq *cq_create(struct ibv_context *context, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel,
                     int vector) {
    struct cq *cq = calloc(1, sizeof *cq);
    struct weft_created_cq answer;
    int file;
    if (!cq || !(cq->name = name_new(cq))) {
        free(cq);
        errno = ENOMEM;
        return NULL;
    }
    struct weft_create_cq body = { .user = cq->name, .cqe = cqe, .comp_vector = (uint32_t)vector,
                                   .channel = channel ? container(channel, struct channel, ibv)->handle : 0 };
    int error = weft_call(context_of(context), (struct call){ .opcode = WEFT_CREATE_CQ, .body = &body,
        .size = sizeof body, .answer = &answer, .answer_size = sizeof answer, .files = &file, .count = 1 });
    if (!error && (error = ring_map(&cq->ring, file, answer.slots, sizeof(struct weft_wc_slot))))
        weft_destroy(context_of(context), WEFT_KIND_CQ, answer.handle);
    if (error) {
        name_forget(cq->name);
        free(cq);
        errno = error;
        return NULL;
    }
    cq->ibv.context = context;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = cq_context;
    cq->ibv.handle = answer.handle;
    cq->ibv.cqe = (int)answer.slots;
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
    pthread_mutex_init(&cq->lock, NULL);
    count_user(channel, 1);
    return cq;
}

PUBLIC struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector) {
    struct cq *cq = cq_create(context, cqe < 0 ? 0 : (uint32_t)cqe, cq_context, channel, vector);
    return cq ? &cq->ibv : NULL;
}

PUBLIC int ibv_resize_cq(struct ibv_cq *ibv, int cqe) {
    struct cq *cq = cq_of(ibv);
    struct weft_resize_cq body = { .handle = ibv->handle, .cqe = cqe < 0 ? 0 : (uint32_t)cqe };
    struct weft_created_cq answer;
    struct ring ring;
    int file;
    pthread_mutex_lock(&cq->lock);
    int error = weft_call(context_of(ibv->context), (struct call){ .opcode = WEFT_RESIZE_CQ, .body = &body,
        .size = sizeof body, .answer = &answer, .answer_size = sizeof answer, .files = &file, .count = 1 });
    if (!error && !(error = ring_map(&ring, file, answer.slots, sizeof(struct weft_wc_slot)))) {
        ring_unmap(&cq->ring);
        cq->ring = ring;
        ibv->cqe = (int)answer.slots;
    }
    pthread_mutex_unlock(&cq->lock);
    return error;
}

PUBLIC int ibv_destroy_cq(struct ibv_cq *ibv) {
    struct cq *cq = cq_of(ibv);
    int error = weft_destroy(context_of(ibv->context), WEFT_KIND_CQ, ibv->handle);
    if (error) return error;
    name_forget(cq->name);
    pthread_mutex_lock(&ibv->mutex);
    while (ibv->comp_events_completed != LOAD(cq->comp_events) || ibv->async_events_completed != LOAD(cq->async_events))
        pthread_cond_wait(&ibv->cond, &ibv->mutex);
    pthread_mutex_unlock(&ibv->mutex);
    count_user(ibv->channel, -1);
    ring_unmap(&cq->ring);
    free(cq);
    return 0;
}

/* ---------------------------------------------------------------------------------------------- completions */

/* Take the next completion; return 0 if there is none. */
int cq_take(struct cq *cq, struct ibv_wc *wc) {
    uint32_t cons = cq->ring.head->cons;
    if (cons == LOAD(cq->ring.head->prod)) return 0;
    struct weft_wc_slot *slot = ring_slot(&cq->ring, cons);
    *wc = (struct ibv_wc){ .wr_id = slot->wr_id, .status = slot->status, .opcode = slot->opcode,
        .vendor_err = slot->vendor_err, .byte_len = slot->byte_len, .imm_data = htobe32(slot->imm_data),
        .qp_num = slot->qp_num, .wc_flags = slot->wc_flags, .src_qp = slot->src_qp, .sl = slot->sl };
    STORE(cq->ring.head->cons, cons + 1);
    return 1;
}

static int take(struct cq *cq, int count, struct ibv_wc *wc) {
    int n = 0;
    while (n < count && cq_take(cq, wc + n)) n++;
    if (n) cq->empty_polls = 0;
    return n;
}

/* Take up to `count` completions of a queue that the caller locked, and that is unlocked during a sleep.
 * Return -1 if the daemon is gone. */
int poll_locked(struct cq *cq, int count, struct ibv_wc *wc) {
    struct context *c = context_of(cq->ibv.context);
    uint32_t notified = LOAD(c->bell->notified);
    int n = take(cq, count, wc);
    if (n || count <= 0 || ++cq->empty_polls <= SIMULATED_PATIENCE) return n;
    if (!time_is_simulated()) {
        if (cq->empty_polls % YIELD == 0 && !LOAD(c->bell->asleep)) sched_yield();
        if (cq->empty_polls < PATIENCE) return 0;
        cq->empty_polls = 0;
    }
    pthread_mutex_unlock(&cq->lock);
    int served = nap(c, notified);
    pthread_mutex_lock(&cq->lock);
    n = take(cq, count, wc);
    return n || served ? n : -1;
}

int poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wc) {
    struct cq *cq = cq_of(ibv);
    pthread_mutex_lock(&cq->lock);
    int n = poll_locked(cq, count, wc);
    pthread_mutex_unlock(&cq->lock);
    return n;
}

/* Remove the completions of a QP that is gone or in RESET. The daemon may add completions of other QPs meanwhile. */
void cq_forget(struct cq *cq, uint32_t qp_num) {
    pthread_mutex_lock(&cq->lock);
    uint32_t cons = cq->ring.head->cons, keep = LOAD(cq->ring.head->prod), at = keep;
    while (at != cons) {
        struct weft_wc_slot *slot = ring_slot(&cq->ring, --at);
        if (slot->qp_num != qp_num && --keep != at) *(struct weft_wc_slot *)ring_slot(&cq->ring, keep) = *slot;
    }
    STORE(cq->ring.head->cons, keep);
    pthread_mutex_unlock(&cq->lock);
}

/* ---------------------------------------------------------------------------------------------------- events */

int req_notify_cq(struct ibv_cq *ibv, int solicited_only) {
    struct cq *cq = cq_of(ibv);
    pthread_mutex_lock(&cq->lock);
    int open = cq->armed && LOAD(cq->ring.head->done) != cq->armed; /* the last request for an event is pending */
    int solicited = solicited_only && (!open || cq->armed & 1);
    cq->armed = ((cq->armed >> 1) + 1) << 1 | (unsigned)solicited;
    __atomic_store_n(&cq->ring.head->armed, cq->armed, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&cq->lock);
    return 0;
}

PUBLIC int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ibv, void **cq_context) {
    struct weft_comp_event event;
    struct cq *cq;
    do
        if (read(channel->fd, &event, sizeof event) != sizeof event) return -1;
    while (!(cq = name_find(event.user)));
    __atomic_add_fetch(&cq->comp_events, 1, __ATOMIC_SEQ_CST);
    *ibv = &cq->ibv;
    *cq_context = cq->ibv.cq_context;
    return 0;
}

PUBLIC void ibv_ack_cq_events(struct ibv_cq *ibv, unsigned count) {
    if (!count) return;
    pthread_mutex_lock(&ibv->mutex);
    ibv->comp_events_completed += count;
    pthread_cond_broadcast(&ibv->cond);
    pthread_mutex_unlock(&ibv->mutex);
}
