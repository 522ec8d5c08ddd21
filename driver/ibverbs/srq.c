/* Shared receive queues. */
#include "weft.h"

static struct ibv_srq *create(struct ibv_pd *pd, struct ibv_srq_attr *attr, void *srq_context) {
    struct srq *srq = calloc(1, sizeof *srq);
    struct weft_created_srq answer;
    int file;
    if (!srq || !(srq->name = name_new(srq))) {
        free(srq);
        errno = ENOMEM;
        return NULL;
    }
    struct weft_create_srq body = { .user = srq->name, .pd = pd->handle, .max_wr = attr->max_wr,
                                    .max_sge = attr->max_sge };
    int error = weft_call(context_of(pd->context), (struct call){ .opcode = WEFT_CREATE_SRQ, .body = &body,
        .size = sizeof body, .answer = &answer, .answer_size = sizeof answer, .files = &file, .count = 1 });
    if (!error && (error = ring_map(&srq->ring, file, answer.slots, answer.slot_bytes)))
        weft_destroy(context_of(pd->context), WEFT_KIND_SRQ, answer.handle);
    if (error) {
        name_forget(srq->name);
        free(srq);
        errno = error;
        return NULL;
    }
    srq->ibv.context = pd->context;
    srq->ibv.srq_context = srq_context;
    srq->ibv.pd = pd;
    srq->ibv.handle = answer.handle;
    srq->number = answer.number;
    srq->max_wr = attr->max_wr;
    srq->max_sge = attr->max_sge;
    pthread_mutex_init(&srq->ibv.mutex, NULL);
    pthread_cond_init(&srq->ibv.cond, NULL);
    pthread_mutex_init(&srq->lock, NULL);
    return &srq->ibv;
}

PUBLIC struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init) {
    return create(pd, &init->attr, init->srq_context);
}

struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *init) {
    (void)context;
    if (init->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD)
        || (init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && init->srq_type != IBV_SRQT_BASIC)
        || !(init->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
        weft_log("only basic SRQs exist here, without XRC and tag matching");
        errno = EOPNOTSUPP;
        return NULL;
    }
    return create(init->pd, &init->attr, init->srq_context);
}

int get_srq_num(struct ibv_srq *srq, uint32_t *number) {
    *number = srq_of(srq)->number;
    return 0;
}

PUBLIC int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask) {
    struct srq *srq = srq_of(ibv);
    struct weft_modify_srq body = { .handle = ibv->handle, .mask = (uint32_t)mask, .max_wr = attr->max_wr,
                                    .srq_limit = attr->srq_limit };
    struct weft_modified_srq answer;
    struct ring ring;
    int file, resized = (mask & IBV_SRQ_MAX_WR) != 0;
    pthread_mutex_lock(&srq->lock);
    int error = weft_call(context_of(ibv->context), (struct call){ .opcode = WEFT_MODIFY_SRQ, .body = &body,
        .size = sizeof body, .answer = &answer, .answer_size = sizeof answer, .files = &file,
        .count = (unsigned)resized });
    if (!error && resized && !(error = ring_map(&ring, file, answer.slots, answer.slot_bytes))) {
        ring_unmap(&srq->ring);
        srq->ring = ring;
        srq->max_wr = attr->max_wr;
    }
    pthread_mutex_unlock(&srq->lock);
    return error;
}

PUBLIC int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr) {
    struct weft_handle body = { .handle = ibv->handle };
    struct weft_srq_attr answer;
    int error = weft_call(context_of(ibv->context), (struct call){ .opcode = WEFT_QUERY_SRQ, .body = &body,
        .size = sizeof body, .answer = &answer, .answer_size = sizeof answer });
    if (!error) *attr = (struct ibv_srq_attr){ answer.max_wr, answer.max_sge, answer.srq_limit };
    return error;
}

PUBLIC int ibv_destroy_srq(struct ibv_srq *ibv) {
    struct srq *srq = srq_of(ibv);
    int error = weft_destroy(context_of(ibv->context), WEFT_KIND_SRQ, ibv->handle);
    if (error) return error;
    name_forget(srq->name);
    pthread_mutex_lock(&ibv->mutex);
    while (ibv->events_completed != LOAD(srq->async_events)) pthread_cond_wait(&ibv->cond, &ibv->mutex);
    pthread_mutex_unlock(&ibv->mutex);
    ring_unmap(&srq->ring);
    free(srq);
    return 0;
}
