/* Functions that are not supported, under their names: a program that is bound to one loads, and a call fails with a
 * message. */
#include "weft.h"

#include <stdbool.h>

static int refuse(const char *name) {
    weft_log("%s does not exist here", name);
    return errno = ENOSYS;
}

/* Declared without parameters, because none is used. */
#define NUMBER(name) \
    PUBLIC int name(void); \
    int name(void) { return refuse(#name); }
#define POINTER(name) \
    PUBLIC void *name(void); \
    void *name(void) { refuse(#name); return NULL; }
#define NOTHING(name) \
    PUBLIC void name(void); \
    void name(void) { }

#pragma GCC diagnostic ignored "-Wunused-parameter"

PUBLIC int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
                                       uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid) {
    return refuse("ibv_resolve_eth_l2_from_gid");
}
PUBLIC struct ibv_context *ibv_import_device(int cmd_fd) {
    refuse("ibv_import_device");
    return NULL;
}
PUBLIC struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle) {
    refuse("ibv_import_pd");
    return NULL;
}
PUBLIC void ibv_unimport_pd(struct ibv_pd *pd) { }
PUBLIC struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle) {
    refuse("ibv_import_mr");
    return NULL;
}
PUBLIC void ibv_unimport_mr(struct ibv_mr *mr) { }
PUBLIC struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle) {
    refuse("ibv_import_dm");
    return NULL;
}
PUBLIC void ibv_unimport_dm(struct ibv_dm *dm) { }
PUBLIC struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                        int access) {
    weft_log("memory of other devices cannot be registered here");
    errno = EOPNOTSUPP;
    return NULL;
}
PUBLIC int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece) {
    weft_log("there is nothing to agree on beyond the standard");
    return EOPNOTSUPP;
}
PUBLIC int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece) {
    weft_log("there is nothing to agree on beyond the standard");
    return EOPNOTSUPP;
}

/* Private node: libraries of real cards register themselves, and never get a device. */
PUBLIC bool verbs_allow_disassociate_destroy;
NOTHING(verbs_register_driver_34)
NOTHING(verbs_set_ops)
NOTHING(verbs_uninit_context)
NOTHING(__verbs_log)
NUMBER(verbs_init_cq)
POINTER(verbs_open_device)
POINTER(_verbs_init_and_alloc_context)
NUMBER(__ioctl_final_num_attrs)
NUMBER(execute_ioctl)
NUMBER(ibv_read_ibdev_sysfs_file)
NUMBER(ibv_cmd_advise_mr)
NUMBER(ibv_cmd_alloc_dm)
NUMBER(ibv_cmd_alloc_mw)
NUMBER(ibv_cmd_alloc_pd)
NUMBER(ibv_cmd_attach_mcast)
NUMBER(ibv_cmd_close_xrcd)
NUMBER(ibv_cmd_create_ah)
NUMBER(ibv_cmd_create_counters)
NUMBER(ibv_cmd_create_cq)
NUMBER(ibv_cmd_create_cq_ex)
NUMBER(ibv_cmd_create_flow)
NUMBER(ibv_cmd_create_flow_action_esp)
NUMBER(ibv_cmd_create_qp)
NUMBER(ibv_cmd_create_qp_ex)
NUMBER(ibv_cmd_create_qp_ex2)
NUMBER(ibv_cmd_create_rwq_ind_table)
NUMBER(ibv_cmd_create_srq)
NUMBER(ibv_cmd_create_srq_ex)
NUMBER(ibv_cmd_create_wq)
NUMBER(ibv_cmd_dealloc_mw)
NUMBER(ibv_cmd_dealloc_pd)
NUMBER(ibv_cmd_dereg_mr)
NUMBER(ibv_cmd_destroy_ah)
NUMBER(ibv_cmd_destroy_counters)
NUMBER(ibv_cmd_destroy_cq)
NUMBER(ibv_cmd_destroy_flow)
NUMBER(ibv_cmd_destroy_flow_action)
NUMBER(ibv_cmd_destroy_qp)
NUMBER(ibv_cmd_destroy_rwq_ind_table)
NUMBER(ibv_cmd_destroy_srq)
NUMBER(ibv_cmd_destroy_wq)
NUMBER(ibv_cmd_detach_mcast)
NUMBER(ibv_cmd_free_dm)
NUMBER(ibv_cmd_get_context)
NUMBER(ibv_cmd_modify_cq)
NUMBER(ibv_cmd_modify_flow_action_esp)
NUMBER(ibv_cmd_modify_qp)
NUMBER(ibv_cmd_modify_qp_ex)
NUMBER(ibv_cmd_modify_srq)
NUMBER(ibv_cmd_modify_wq)
NUMBER(ibv_cmd_open_qp)
NUMBER(ibv_cmd_open_xrcd)
NUMBER(ibv_cmd_poll_cq)
NUMBER(ibv_cmd_post_recv)
NUMBER(ibv_cmd_post_send)
NUMBER(ibv_cmd_post_srq_recv)
NUMBER(ibv_cmd_query_context)
NUMBER(ibv_cmd_query_device_any)
NUMBER(ibv_cmd_query_mr)
NUMBER(ibv_cmd_query_port)
NUMBER(ibv_cmd_query_qp)
NUMBER(ibv_cmd_query_srq)
NUMBER(ibv_cmd_read_counters)
NUMBER(ibv_cmd_reg_dm_mr)
NUMBER(ibv_cmd_reg_dmabuf_mr)
NUMBER(ibv_cmd_reg_mr)
NUMBER(ibv_cmd_req_notify_cq)
NUMBER(ibv_cmd_rereg_mr)
NUMBER(ibv_cmd_resize_cq)

/* For programs and drivers of 2006, bound to the first version of the interface, which had other structures. */
#define OLD(name, version) \
    int old_##name(void); \
    PUBLIC int old_##name(void) { return refuse(#name "@" #version); } \
    __asm__(".symver old_" #name ", " #name "@" #version);
#define OLDEST(name) OLD(name, IBVERBS_1.0)
RENEWED(OLDEST)
OLD(ibv_register_driver, IBVERBS_1.1)
