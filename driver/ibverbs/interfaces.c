/* Network interface of the card. The machine has none for it, but programs choose cards by the addresses of interfaces.
 * It follows the machine's interfaces in the list. */
#include "preload.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#define NETMASK 0xFFFFFF00u

static char name[] = "weft0";

struct interface {
    struct ifaddrs ifa;
    struct sockaddr_in address, mask, broadcast;
};

static struct sockaddr_in number(uint32_t ip) {
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(ip) };
}

PUBLIC int getifaddrs(struct ifaddrs **list) {
    int failed = NEXT(getifaddrs)(list);
    uint32_t ip = failed ? 0 : cm_own_ip();
    struct interface *one = ip ? calloc(1, sizeof *one) : NULL;
    if (!one) return failed;
    one->address = number(ip);
    one->mask = number(NETMASK);
    one->broadcast = number(ip | ~NETMASK);
    one->ifa = (struct ifaddrs){ .ifa_name = name, .ifa_flags = IFF_UP | IFF_RUNNING | IFF_BROADCAST,
        .ifa_addr = (struct sockaddr *)&one->address, .ifa_netmask = (struct sockaddr *)&one->mask,
        .ifa_broadaddr = (struct sockaddr *)&one->broadcast };
    struct ifaddrs **end = list;
    while (*end) end = &(*end)->ifa_next;
    *end = &one->ifa;
    return 0;
}

PUBLIC void freeifaddrs(struct ifaddrs *list) {
    struct ifaddrs **end = &list;
    while (*end && (*end)->ifa_name != name) end = &(*end)->ifa_next;
    free(*end);
    *end = NULL;
    if (list) NEXT(freeifaddrs)(list);
}
