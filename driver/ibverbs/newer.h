/* Functions that there were with other structures before: the names that programs of today are bound to. */
#pragma once
#define NEWER(name) __asm__(".symver " #name ", " #name "@@@IBVERBS_1.1")
NEWER(ibv_ack_async_event);
NEWER(ibv_ack_cq_events);
NEWER(ibv_alloc_pd);
NEWER(ibv_attach_mcast);
NEWER(ibv_close_device);
NEWER(ibv_create_ah);
NEWER(ibv_create_cq);
NEWER(ibv_create_qp);
NEWER(ibv_create_srq);
NEWER(ibv_dealloc_pd);
NEWER(ibv_dereg_mr);
NEWER(ibv_destroy_ah);
NEWER(ibv_destroy_cq);
NEWER(ibv_destroy_qp);
NEWER(ibv_destroy_srq);
NEWER(ibv_detach_mcast);
NEWER(ibv_free_device_list);
NEWER(ibv_get_async_event);
NEWER(ibv_get_cq_event);
NEWER(ibv_get_device_guid);
NEWER(ibv_get_device_list);
NEWER(ibv_get_device_name);
NEWER(ibv_modify_qp);
NEWER(ibv_modify_srq);
NEWER(ibv_open_device);
NEWER(ibv_query_device);
NEWER(ibv_query_gid);
NEWER(ibv_query_pkey);
NEWER(ibv_query_port);
NEWER(ibv_query_qp);
NEWER(ibv_query_srq);
NEWER(ibv_reg_mr);
NEWER(ibv_resize_cq);
