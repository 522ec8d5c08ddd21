/* What a program must not see of the machine that it runs on. */
#include "preload.h"

#include <linux/netlink.h>
#include <sys/socket.h>

/* The RDMA devices of the kernel's, if it has any, are not those of this program. */
PUBLIC int socket(int domain, int type, int protocol) {
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return NEXT(socket)(domain, type, protocol);
}
