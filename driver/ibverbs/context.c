/* Contexts: each has a connection to the daemon, a bell, and asynchronous events. */
#include "weft.h"

#include <sys/mman.h>
#include <unistd.h>

static int shake_hands(struct context *c) {
    struct weft_welcome welcome;
    int files[4];
    int error = say_hello(c, &welcome, files);
    if (error) return error;
    c->bell = mmap(NULL, sizeof *c->bell, PROT_READ | PROT_WRITE, MAP_SHARED, files[0], 0);
    close(files[0]);
    c->doorbell = files[1];
    c->wake = files[2];
    c->verbs.context.async_fd = files[3];
    memcpy(c->gid, welcome.gid, sizeof c->gid);
    if (c->bell == MAP_FAILED) return ENOMEM;
    return weft_call(c, (struct call){ .opcode = WEFT_QUERY_DEVICE, .answer = &c->attr, .answer_size = sizeof c->attr });
}

static void hang_up(struct context *c) {
    if (c->bell && c->bell != MAP_FAILED) munmap(c->bell, sizeof *c->bell);
    if (c->mapper >= 0) close(c->mapper);
    close(c->doorbell);
    close(c->wake);
    close(c->verbs.context.async_fd);
    close(c->socket);
}

PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device) {
    struct context *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->doorbell = c->wake = c->mapper = c->verbs.context.async_fd = -1;
    int error = shake_hands(c);
    if (error) {
        if (c->bell) hang_up(c);
        free(c);
        errno = error;
        return NULL;
    }
    struct verbs_context *v = &c->verbs;
    v->sz = sizeof *v;
    v->create_cq_ex = create_cq_ex;
    v->create_qp_ex = create_qp_ex;
    v->create_srq_ex = create_srq_ex;
    v->get_srq_num = get_srq_num;
    add_queries(v);
    v->context.device = device;
    v->context.cmd_fd = -1;
    v->context.num_comp_vectors = 1;
    v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    v->context.ops.poll_cq = poll_cq;
    v->context.ops.req_notify_cq = req_notify_cq;
    v->context.ops.post_send = post_send;
    v->context.ops.post_recv = post_recv;
    v->context.ops.post_srq_recv = post_srq_recv;
    pthread_mutex_init(&v->context.mutex, NULL);
    return &v->context;
}

PUBLIC int ibv_close_device(struct ibv_context *context) {
    struct context *c = context_of(context);
    hang_up(c);
    free(c);
    return 0;
}

/* Set the object of an event, and return the counter of its events. */
static uint32_t *counter(struct ibv_async_event *event, void *object) {
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        event->element.cq = &((struct cq *)object)->ibv;
        return &((struct cq *)object)->async_events;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        event->element.srq = &((struct srq *)object)->ibv;
        return &((struct srq *)object)->async_events;
    default:
        event->element.qp = &((struct qp *)object)->ex.qp_base;
        return &((struct qp *)object)->async_events;
    }
}

static int of_port(enum ibv_event_type type) {
    return type == IBV_EVENT_DEVICE_FATAL || (type >= IBV_EVENT_PORT_ACTIVE && type <= IBV_EVENT_SM_CHANGE)
        || type == IBV_EVENT_CLIENT_REREGISTER || type == IBV_EVENT_GID_CHANGE;
}

PUBLIC int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    struct weft_async_event news;
    for (;;) {
        if (read(context->async_fd, &news, sizeof news) != sizeof news) return -1;
        event->event_type = news.event_type;
        if (of_port(event->event_type)) {
            event->element.port_num = (int)news.user;
            return 0;
        }
        void *object = name_find(news.user);
        if (!object) continue;
        __atomic_add_fetch(counter(event, object), 1, __ATOMIC_SEQ_CST);
        return 0;
    }
}

PUBLIC void ibv_ack_async_event(struct ibv_async_event *event) {
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
    uint32_t *completed;
    if (of_port(event->event_type)) return;
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        mutex = &event->element.cq->mutex, cond = &event->element.cq->cond;
        completed = &event->element.cq->async_events_completed;
        break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        mutex = &event->element.srq->mutex, cond = &event->element.srq->cond;
        completed = &event->element.srq->events_completed;
        break;
    default:
        mutex = &event->element.qp->mutex, cond = &event->element.qp->cond;
        completed = &event->element.qp->events_completed;
    }
    pthread_mutex_lock(mutex);
    ++*completed;
    pthread_cond_broadcast(cond);
    pthread_mutex_unlock(mutex);
}

PUBLIC int ibv_fork_init(void) { return 0; } /* registered memory is not changed: see mr.c */

PUBLIC enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }

PUBLIC int ibv_dontfork_range(void *base, size_t size) { return base || !size ? 0 : EINVAL; }

PUBLIC int ibv_dofork_range(void *base, size_t size) { return base || !size ? 0 : EINVAL; }
