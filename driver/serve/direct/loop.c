/* The thread that executes: it looks for posted requests, and sleeps if there are none. */
#include "direct.h"

#include <sched.h>
#include <sys/epoll.h>
#include <time.h>

enum { BUDGET = 128 << 10, EVENTS = 64, NS_PER_MS = 1000000 };

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Queue a QP for execution. */
void activate(struct qp *qp) {
    struct fabric *fabric = qp->client->host->fabric;
    if (qp->is_active || qp->is_stalled) return;
    qp->is_active = 1;
    qp->queue_next = NULL;
    *fabric->active_end = qp;
    fabric->active_end = &qp->queue_next;
}

/* Forget a QP that ends or is reset. Those that wait for it look at it again. */
void leave(struct qp *qp) {
    struct fabric *fabric = qp->client->host->fabric;
    fabric->changed = 1;
    fabric->window.qp = fabric->merged.qp = NULL;
    struct qp **at = &fabric->active;
    while (*at && *at != qp) at = &(*at)->queue_next;
    if (*at) {
        *at = qp->queue_next;
        if (fabric->active_end == &qp->queue_next) fabric->active_end = at;
    }
    for (at = &fabric->stalled; *at && *at != qp;) at = &(*at)->queue_next;
    if (*at) *at = qp->queue_next;
    qp->is_active = qp->is_stalled = 0;
}

/* Queue the QPs of a client with posted requests. */
static void scan(struct client *client) {
    for (struct qp *qp = client->qps; qp && !client->dead; qp = qp->next) {
        uint32_t receives = ring_filled(&qp->own.ring, client);
        if (ring_filled(&qp->sends, client) || (qp->error && receives)) activate(qp);
    }
}

/* Queue the QPs that wait, because something they may wait for has changed, or the time of one is over. */
static void retry(struct fabric *fabric) {
    struct qp *waiting = fabric->stalled;
    fabric->stalled = NULL;
    while (waiting) {
        struct qp *qp = waiting;
        waiting = qp->queue_next;
        qp->is_stalled = 0;
        activate(qp);
    }
}

static uint64_t first_deadline(const struct fabric *fabric) {
    uint64_t first = UINT64_MAX;
    for (const struct qp *qp = fabric->stalled; qp; qp = qp->queue_next)
        if (qp->deadline < first) first = qp->deadline;
    return first;
}

static int has_posts(const struct fabric *fabric) {
    for (const struct client *client = fabric->clients; client; client = client->next)
        if (!client->dead && LOAD(client->bell->posted) != client->posted) return 1;
    return 0;
}

/* Do one round; return true if something was executed. */
static int round_of(struct fabric *fabric) {
    int changed = fabric->changed;
    fabric->changed = 0;
    for (struct client *client = fabric->clients; client; client = client->next) {
        uint32_t posted = LOAD(client->bell->posted);
        if (client->dead || posted == client->posted) continue;
        client->posted = posted;
        changed = 1;
        scan(client);
    }
    if (fabric->stalled && (changed || now_ns() >= first_deadline(fabric))) retry(fabric);
    struct qp *qp = fabric->active;
    if (!qp) return changed;
    fabric->active = NULL;
    fabric->active_end = &fabric->active;
    while (qp) {
        struct qp *next = qp->queue_next;
        size_t budget = BUDGET;
        qp->is_active = 0;
        enum turn turn = execute(qp, &budget);
        if (turn == AGAIN) activate(qp);
        else if (turn == STALLED && !qp->is_active) {
            qp->is_stalled = 1;
            qp->queue_next = fabric->stalled;
            fabric->stalled = qp;
        }
        qp = next;
    }
    return 1;
}

/* Request doorbells, or none. A receive request is of interest if a message may wait for it, or if it is flushed. */
static void set_asleep(struct fabric *fabric, uint32_t asleep) {
    for (struct client *client = fabric->clients; client; client = client->next)
        __atomic_store_n(&client->bell->asleep, asleep && (fabric->stalled || client->flushes)
                         ? WEFT_DOORBELL_SENDS | WEFT_DOORBELL_RECEIVES : asleep, __ATOMIC_SEQ_CST);
}

/* Sleep until a doorbell or the daemon's kick, or until a QP has waited long enough. */
static void sleep_of(struct fabric *fabric) {
    struct epoll_event events[EVENTS];
    set_asleep(fabric, WEFT_DOORBELL_SENDS);
    FENCE();
    if (!has_posts(fabric) && !fabric->changed && !fabric->stop) {
        uint64_t deadline = first_deadline(fabric), now = deadline == UINT64_MAX ? 0 : now_ns();
        uint64_t ms = deadline <= now ? 0 : (deadline - now) / NS_PER_MS + 1;
        fabric->sleeping = 1;
        pthread_mutex_unlock(&fabric->lock);
        epoll_wait(fabric->epoll, events, EVENTS, deadline == UINT64_MAX ? -1 : ms > 1000 ? 1000 : (int)ms);
        pthread_mutex_lock(&fabric->lock);
        fabric->sleeping = 0;
    }
    set_asleep(fabric, 0);
}

void *run(void *argument) {
    struct fabric *fabric = argument;
    uint64_t idle_since = 0;
    pthread_mutex_lock(&fabric->lock);
    while (!fabric->stop) {
        if (LOAD(fabric->wanted)) {
            pthread_mutex_unlock(&fabric->lock);
            while (LOAD(fabric->wanted)) sched_yield();
            pthread_mutex_lock(&fabric->lock);
        }
        if (round_of(fabric)) idle_since = 0;
        else if (!idle_since) idle_since = now_ns();
        else if (now_ns() - idle_since >= fabric->spin_ns) {
            sleep_of(fabric);
            idle_since = 0;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return NULL;
}
