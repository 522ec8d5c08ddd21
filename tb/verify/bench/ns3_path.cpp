// Two hosts and a path between them in ns-3. Sends packets back to back; prints the processor seconds and the number of
// packets that arrived. Arguments: packets, payload bytes, rate in bit/s, one-way delay in ns, loss, and "udp" for UDP
// over IPv4, as for RoCEv2 packets, or "bare" for the link devices alone.
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

namespace
{
uint64_t left, arrived;
uint32_t bytes;
Ptr<NetDevice> device;
Ptr<Socket> from;

void Next()
{
    if (left == 0)
        return;
    --left;
    Ptr<Packet> packet = Create<Packet>(bytes);
    if (from)
        from->Send(packet);
    else
        device->Send(packet, device->GetBroadcast(), Ipv4L3Protocol::PROT_NUMBER);
}

void Sent(Ptr<const Packet>)
{
    Next();
}

bool Arrived(Ptr<NetDevice>, Ptr<const Packet>, uint16_t, const Address&)
{
    ++arrived;
    return true;
}

void Receive(Ptr<Socket> socket)
{
    while (socket->Recv())
        ++arrived;
}
} // namespace

int main(int count, char** arguments)
{
    if (count != 7)
    {
        std::cerr << "ns3_path PACKETS BYTES RATE DELAY LOSS udp|bare\n";
        return 2;
    }
    left = std::strtoull(arguments[1], nullptr, 10);
    bytes = std::strtoul(arguments[2], nullptr, 10);
    NodeContainer nodes(2);
    PointToPointHelper line;
    line.SetDeviceAttribute("DataRate", StringValue(std::string(arguments[3]) + "bps"));
    line.SetDeviceAttribute("Mtu", UintegerValue(9000));
    line.SetChannelAttribute("Delay", StringValue(std::string(arguments[4]) + "ns"));
    NetDeviceContainer devices = line.Install(nodes);
    Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
    errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
    errors->SetRate(std::strtod(arguments[5], nullptr));
    devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
    device = devices.Get(0);
    device->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Sent));
    Ptr<Socket> to;
    if (std::string(arguments[6]) == "udp")
    {
        InternetStackHelper().Install(nodes);
        Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
        Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
        to = Socket::CreateSocket(nodes.Get(1), UdpSocketFactory::GetTypeId());
        to->Bind(InetSocketAddress(Ipv4Address::GetAny(), 4791));
        to->SetRecvCallback(MakeCallback(&Receive));
        from = Socket::CreateSocket(nodes.Get(0), UdpSocketFactory::GetTypeId());
        from->Connect(InetSocketAddress(interfaces.GetAddress(1), 4791));
    }
    else
    {
        devices.Get(1)->SetReceiveCallback(MakeCallback(&Arrived));
    }
    Simulator::ScheduleNow(&Next);      // one packet on the line, one queued
    Simulator::ScheduleNow(&Next);
    std::clock_t begin = std::clock();
    Simulator::Run();
    std::cout << double(std::clock() - begin) / CLOCKS_PER_SEC << " " << arrived << "\n";
    Simulator::Destroy();
    return 0;
}
