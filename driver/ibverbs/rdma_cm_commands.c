/* Commands of the `rdma_cm` device (rdma/rdma_user_cm.h), translated to messages to the daemon. */
#include "preload.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

/* Command: file, body, and the number of bytes that the program takes of its answer. */
struct command {
    int file;
    const void *body;
    size_t size, room;
};

#define ASK(opcode_, body_) weft_call(cm_daemon(), (struct call){ .opcode = opcode_, .body = &(body_), \
                                                                  .size = sizeof(body_) })
#define ASK_FOR(opcode_, body_, answer_) weft_call(cm_daemon(), (struct call){ .opcode = opcode_, .body = &(body_), \
    .size = sizeof(body_), .answer = &(answer_), .answer_size = sizeof(answer_) })
/* Body of the command; older programs omit the end of it. */
#define ASKED(type, name) \
    struct type name = { 0 }; \
    memcpy(&name, c->body, c->size < sizeof name ? c->size : sizeof name)

static int respond(const struct command *c, uint64_t where, const void *answer, size_t size) {
    if (c->room < size) size = c->room;
    memcpy((void *)(uintptr_t)where, answer, size);
    return 0;
}

/* ------------------------------------------------------------------------------------------------- addresses */

static int from_sockaddr(const struct sockaddr_in6 *given, uint32_t *ip, uint32_t *port) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)given;
    uint32_t words[4];
    *ip = *port = 0;
    if (given->sin6_family == AF_UNSPEC) return 0;
    *port = ntohs(given->sin6_port); /* at the same offset in both */
    if (given->sin6_family == AF_INET) *ip = ntohl(four->sin_addr.s_addr);
    else if (given->sin6_family != AF_INET6) return EAFNOSUPPORT;
    else if (IN6_IS_ADDR_LOOPBACK(&given->sin6_addr)) *ip = INADDR_LOOPBACK;
    else if (IN6_IS_ADDR_V4MAPPED(&given->sin6_addr)) {
        memcpy(words, &given->sin6_addr, sizeof words);
        *ip = ntohl(words[3]);
    } else if (!IN6_IS_ADDR_UNSPECIFIED(&given->sin6_addr)) {
        weft_log("cards have IPv4 addresses only");
        return EADDRNOTAVAIL;
    }
    return 0;
}

static void to_sockaddr(struct sockaddr_in6 *given, uint32_t ip, uint32_t port) {
    struct sockaddr_in *four = (struct sockaddr_in *)given;
    memset(given, 0, sizeof *given);
    *four = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(ip) };
}

static int bind_ip(const struct command *c) {
    ASKED(rdma_ucm_bind_ip, asked);
    struct weft_bind_addr body = { .handle = asked.id };
    int error = from_sockaddr(&asked.addr, &body.ip, &body.port);
    body.ipv6 = asked.addr.sin6_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&asked.addr.sin6_addr);
    return error ? error : ASK(WEFT_BIND_ADDR, body);
}

static int resolve_ip(const struct command *c) {
    ASKED(rdma_ucm_resolve_ip, asked);
    struct weft_resolve_addr body = { .handle = asked.id, .timeout_ms = asked.timeout_ms };
    int error = from_sockaddr(&asked.src_addr, &body.src_ip, &body.src_port);
    if (!error) error = from_sockaddr(&asked.dst_addr, &body.dst_ip, &body.dst_port);
    return error ? error : ASK(WEFT_RESOLVE_ADDR, body);
}

static int resolve_route(const struct command *c) {
    ASKED(rdma_ucm_resolve_route, asked);
    struct weft_handle body = { .handle = asked.id };
    return ASK(WEFT_RESOLVE_ROUTE, body);
}

static int query_route(const struct command *c) {
    ASKED(rdma_ucm_query, asked);
    struct weft_handle body = { .handle = asked.id };
    struct weft_id_route found;
    int error = ASK_FOR(WEFT_QUERY_ROUTE, body, found);
    if (error) return error;
    struct rdma_ucm_query_route_resp answer = { .node_guid = htobe64(found.node_guid), .num_paths = found.paths,
                                                .port_num = found.node_guid ? 1 : 0 };
    struct ib_user_path_rec *path = &answer.ib_route[0];
    *path = (struct ib_user_path_rec){ .pkey = htobe16(0xFFFF), .mtu = found.mtu, .mtu_selector = 2, .reversible = 1,
        .numb_path = 1, .hop_limit = 64, .rate_selector = 2, .packet_life_time_selector = 2 };
    memcpy(path->sgid, found.sgid, sizeof path->sgid);
    memcpy(path->dgid, found.dgid, sizeof path->dgid);
    to_sockaddr(&answer.src_addr, found.src_ip, found.src_port);
    to_sockaddr(&answer.dst_addr, found.dst_ip, found.dst_port);
    return respond(c, asked.response, &answer, sizeof answer);
}

/* ----------------------------------------------------------------------------------------------- identifiers */

static int create_id(const struct command *c) {
    ASKED(rdma_ucm_create_id, asked);
    struct weft_create_id body = { .user = asked.uid, .channel = cm_file(c->file)->handle, .port_space = asked.ps,
                                   .qp_type = asked.qp_type };
    struct weft_handle made;
    int error = ASK_FOR(WEFT_CREATE_ID, body, made);
    struct rdma_ucm_create_id_resp answer = { .id = error ? 0 : made.handle };
    return error ? error : respond(c, asked.response, &answer, sizeof answer);
}

static int destroy_id(const struct command *c) {
    ASKED(rdma_ucm_destroy_id, asked);
    struct weft_handle body = { .handle = asked.id };
    struct weft_events events;
    int error = ASK_FOR(WEFT_DESTROY_ID, body, events);
    if (error) return error;
    cm_drop_tokens(c->file, events.dropped);
    struct rdma_ucm_destroy_id_resp answer = { .events_reported = events.reported };
    return respond(c, asked.response, &answer, sizeof answer);
}

static int migrate_id(const struct command *c) {
    ASKED(rdma_ucm_migrate_id, asked);
    if (!cm_is((int)asked.fd)) return EINVAL;
    struct weft_migrate_id body = { .handle = asked.id, .channel = cm_file(c->file)->handle };
    struct weft_moved moved;
    int error = ASK_FOR(WEFT_MIGRATE_ID, body, moved);
    if (error) return error;
    cm_drop_tokens((int)asked.fd, moved.moved);
    struct rdma_ucm_migrate_resp answer = { .events_reported = moved.reported };
    return respond(c, asked.response, &answer, sizeof answer);
}

static int set_option(const struct command *c) {
    ASKED(rdma_ucm_set_option, asked);
    struct weft_set_option body = { .handle = asked.id, .level = asked.level, .name = asked.optname };
    if (asked.optlen > sizeof body.value) return ENOSYS; /* a path record; there is only one path */
    memcpy(&body.value, (const void *)(uintptr_t)asked.optval, asked.optlen);
    return ASK(WEFT_SET_OPTION, body);
}

static int init_qp_attr(const struct command *c) {
    ASKED(rdma_ucm_init_qp_attr, asked);
    struct weft_init_qp_attr body = { .handle = asked.id, .qp_state = asked.qp_state };
    struct weft_id_qp_attr a;
    int error = ASK_FOR(WEFT_INIT_QP_ATTR, body, a);
    if (error) return error;
    struct ib_uverbs_qp_attr answer = {
        .qp_attr_mask = a.mask, .qp_state = a.qp_state, .cur_qp_state = a.cur_qp_state, .path_mtu = a.path_mtu,
        .path_mig_state = a.path_mig_state, .qkey = a.qkey, .rq_psn = a.rq_psn, .sq_psn = a.sq_psn,
        .dest_qp_num = a.dest_qp_num, .qp_access_flags = a.qp_access_flags, .pkey_index = a.pkey_index,
        .max_rd_atomic = a.max_rd_atomic, .max_dest_rd_atomic = a.max_dest_rd_atomic,
        .min_rnr_timer = a.min_rnr_timer, .port_num = a.port_num, .timeout = a.timeout, .retry_cnt = a.retry_cnt,
        .rnr_retry = a.rnr_retry,
        .ah_attr = { .grh = { .flow_label = a.flow_label, .sgid_index = a.sgid_index, .hop_limit = a.hop_limit,
                              .traffic_class = a.traffic_class },
                     .sl = a.sl, .is_global = a.is_global, .port_num = a.ah_port_num } };
    memcpy(answer.ah_attr.grh.dgid, a.dgid, sizeof a.dgid);
    return respond(c, asked.response, &answer, sizeof answer);
}

/* ----------------------------------------------------------------------------------------------- connections */

#define TAKE_PARAM(to, from) do { \
    (to).qp_num = (from).qp_num, (to).private_data_len = (from).private_data_len, (to).srq = (from).srq; \
    (to).responder_resources = (from).responder_resources, (to).initiator_depth = (from).initiator_depth; \
    (to).flow_control = (from).flow_control, (to).retry_count = (from).retry_count, (to).qkey = (from).qkey; \
    (to).rnr_retry_count = (from).rnr_retry_count; \
    memcpy((to).private_data, (from).private_data, sizeof (to).private_data); } while (0)

static int connect_to(const struct command *c) {
    ASKED(rdma_ucm_connect, asked);
    struct weft_connect body = { .handle = asked.id };
    TAKE_PARAM(body, asked.conn_param);
    return ASK(WEFT_CONNECT, body);
}

static int listen_for(const struct command *c) {
    ASKED(rdma_ucm_listen, asked);
    struct weft_listen body = { .handle = asked.id, .backlog = asked.backlog };
    return ASK(WEFT_LISTEN, body);
}

static int accept_it(const struct command *c) {
    ASKED(rdma_ucm_accept, asked);
    struct weft_accept body = { .user = asked.uid, .handle = asked.id, .valid = asked.conn_param.valid };
    TAKE_PARAM(body, asked.conn_param);
    return ASK(WEFT_ACCEPT, body);
}

static int reject_it(const struct command *c) {
    ASKED(rdma_ucm_reject, asked);
    struct weft_reject body = { .handle = asked.id, .reason = asked.reason,
                                .private_data_len = asked.private_data_len };
    memcpy(body.private_data, asked.private_data, sizeof body.private_data);
    return ASK(WEFT_REJECT, body);
}

static int disconnect_it(const struct command *c) {
    ASKED(rdma_ucm_disconnect, asked);
    struct weft_handle body = { .handle = asked.id };
    return ASK(WEFT_DISCONNECT, body);
}

static int notify(const struct command *c) {
    ASKED(rdma_ucm_notify, asked);
    struct weft_notify body = { .handle = asked.id, .event = asked.event };
    return ASK(WEFT_NOTIFY, body);
}

static int join_ip_mcast(const struct command *c) {
    ASKED(rdma_ucm_join_ip_mcast, asked);
    struct weft_join_multicast body = { .user = asked.uid, .handle = asked.id };
    struct weft_handle made;
    uint32_t port;
    int error = from_sockaddr(&asked.addr, &body.ip, &port);
    if (!error) error = ASK_FOR(WEFT_JOIN_MULTICAST, body, made);
    struct rdma_ucm_create_id_resp answer = { .id = error ? 0 : made.handle };
    return error ? error : respond(c, asked.response, &answer, sizeof answer);
}

static int leave_mcast(const struct command *c) {
    ASKED(rdma_ucm_destroy_id, asked);
    struct weft_handle body = { .handle = asked.id };
    struct weft_left left;
    int error = ASK_FOR(WEFT_LEAVE_MULTICAST, body, left);
    if (error) return error;
    cm_drop_tokens(c->file, left.dropped);
    struct rdma_ucm_destroy_id_resp answer = { .events_reported = left.reported };
    return respond(c, asked.response, &answer, sizeof answer);
}

/* Fill the parameters of an event of a UD queue pair. */
static void take_datagram_param(struct rdma_ucm_ud_param *to, const struct weft_cm_event *from) {
    uint32_t ip = htonl(from->peer_ip);
    to->qp_num = from->qp_num;
    to->qkey = from->qkey;
    to->private_data_len = from->private_data_len;
    memcpy(to->private_data, from->private_data, sizeof to->private_data);
    if (!from->peer_ip) return;
    to->ah_attr = (struct ib_uverbs_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
    memset(to->ah_attr.grh.dgid + 10, 0xFF, 2);
    memcpy(to->ah_attr.grh.dgid + 12, &ip, sizeof ip);
}

static int get_event(const struct command *c) {
    ASKED(rdma_ucm_get_event, asked);
    struct weft_handle body = { .handle = cm_file(c->file)->handle };
    struct weft_cm_event event;
    do {
        int error = cm_next_event(c->file);
        if (!error) error = ASK_FOR(WEFT_GET_CM_EVENT, body, event);
        if (error && error != EAGAIN && LOAD(cm_file(c->file)->handle) != body.handle) {
            pause(); /* closed meanwhile: a kernel lets such a thread wait */
            return EINTR;
        }
        if (error) return error;
    } while (!event.there);
    struct rdma_ucm_event_resp answer = { .uid = event.user, .id = event.id, .event = event.event,
                                          .status = event.status };
    if (event.ud) take_datagram_param(&answer.param.ud, &event);
    else TAKE_PARAM(answer.param.conn, event);
    return respond(c, asked.response, &answer, sizeof answer);
}

/* Execute a command; return 0 or an error number. */
static int cm_command(int file, uint32_t command, const void *body, size_t size, size_t room) {
    static int (*const commands[])(const struct command *) = {
        [RDMA_USER_CM_CMD_CREATE_ID] = create_id, [RDMA_USER_CM_CMD_DESTROY_ID] = destroy_id,
        [RDMA_USER_CM_CMD_BIND_IP] = bind_ip, [RDMA_USER_CM_CMD_RESOLVE_IP] = resolve_ip,
        [RDMA_USER_CM_CMD_RESOLVE_ROUTE] = resolve_route, [RDMA_USER_CM_CMD_QUERY_ROUTE] = query_route,
        [RDMA_USER_CM_CMD_CONNECT] = connect_to, [RDMA_USER_CM_CMD_LISTEN] = listen_for,
        [RDMA_USER_CM_CMD_ACCEPT] = accept_it, [RDMA_USER_CM_CMD_REJECT] = reject_it,
        [RDMA_USER_CM_CMD_DISCONNECT] = disconnect_it, [RDMA_USER_CM_CMD_INIT_QP_ATTR] = init_qp_attr,
        [RDMA_USER_CM_CMD_GET_EVENT] = get_event, [RDMA_USER_CM_CMD_SET_OPTION] = set_option,
        [RDMA_USER_CM_CMD_NOTIFY] = notify, [RDMA_USER_CM_CMD_MIGRATE_ID] = migrate_id,
        [RDMA_USER_CM_CMD_JOIN_IP_MCAST] = join_ip_mcast, [RDMA_USER_CM_CMD_LEAVE_MCAST] = leave_mcast };
    if (command >= sizeof commands / sizeof *commands || !commands[command]) {
        weft_log("command %u of connection management does not exist here", command);
        return ENOSYS;
    }
    return commands[command](&(struct command){ file, body, size, room });
}

ssize_t cm_write(int file, const void *data, size_t size) {
    struct rdma_ucm_cmd_hdr head;
    int error = EINVAL;
    if (size >= sizeof head) {
        memcpy(&head, data, sizeof head);
        if (head.in == size - sizeof head)
            error = cm_command(file, head.cmd, (const char *)data + sizeof head, head.in, head.out);
    }
    if (!error) return (ssize_t)size;
    errno = error;
    return -1;
}
