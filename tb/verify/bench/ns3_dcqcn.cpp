// Flows with DCQCN that share one marking port, in ns-3: the queue disc RED and ECN are those of ns-3, the reaction point
// is written from section 3.1 of the paper (Zhu et al., SIGCOMM 2015), with a timer event for each period. A host pair per
// flow on both sides of two routers. Prints a line for each step of time: bytes in the queue, then the rate of each flow in
// bit/s. Arguments: flows, steps, step in ns, time between two starts in ns, packet on the line, line rate in bit/s,
// one-way delay in ns, queue from which and up to which RED marks, its mean chance of a mark there, gain, time between CNPs
// in ns, limit of a flow in flight in bytes. ns-3 marks one of 1 to 1/p packets, with equal chance, so p is half as large.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace
{
constexpr double TIMER_NS = 55e3, ADDITIVE = 40e6, HYPER = 400e6, LEAST = 10e6, BYTES = 10e6;
constexpr uint32_t RECOVERIES = 5, ACKED_AT_ONCE = 4, CONTROL_BYTES = 90, HEADERS = 30; // IPv4, UDP, PPP
constexpr uint8_t ECT0 = 2, CE = 3, ACK = 0, CNP = 1;
double line, gain;
uint32_t packetBytes, limit;
Time cnpInterval;

class Receiver
{
  public:
    explicit Receiver(Ptr<Socket> socket)
        : m_socket(socket)
    {
        socket->SetIpRecvTos(true);
        socket->SetRecvCallback(MakeCallback(&Receiver::Receive, this));
    }

  private:
    void Receive(Ptr<Socket> socket)
    {
        Address from;
        while (Ptr<Packet> packet = socket->RecvFrom(from))
        {
            SocketIpTosTag tos;
            if (packet->RemovePacketTag(tos) && (tos.GetTos() & CE) == CE && Simulator::Now() >= m_next)
            {
                m_next = Simulator::Now() + cnpInterval;
                Answer(CNP, from);
            }
            if (++m_count % ACKED_AT_ONCE == 0)
                Answer(ACK, from);
        }
    }

    void Answer(uint8_t kind, const Address& to)
    {
        std::vector<uint8_t> bytes(CONTROL_BYTES - HEADERS, kind);
        m_socket->SendTo(Create<Packet>(bytes.data(), bytes.size()), 0, to);
    }

    Ptr<Socket> m_socket;
    uint64_t m_count = 0;
    Time m_next;
};

class Sender
{
  public:
    explicit Sender(Ptr<Socket> socket)
        : m_socket(socket)
    {
        socket->SetIpTos(ECT0);
        socket->SetRecvCallback(MakeCallback(&Sender::Receive, this));
    }

    void Send()
    {
        if (Simulator::Now() < m_next || m_waiting.IsRunning() || m_flight + packetBytes > limit)
            return;
        m_socket->Send(Create<Packet>(packetBytes - HEADERS));
        m_flight += packetBytes;
        m_counted += packetBytes;
        if (m_counted >= BYTES)
        {
            m_counted -= BYTES;
            ++m_byteCount;
            Increase();
        }
        m_next = Simulator::Now() + NanoSeconds(packetBytes * 8e9 / rate);
        m_waiting = Simulator::Schedule(m_next - Simulator::Now(), &Sender::Send, this);
    }

    double rate = line;

  private:
    void Receive(Ptr<Socket> socket)
    {
        while (Ptr<Packet> packet = socket->Recv())
        {
            uint8_t kind;
            packet->CopyData(&kind, 1);
            if (kind == CNP)
                Notified();
            else
                m_flight -= ACKED_AT_ONCE * packetBytes;
        }
        Send();
    }

    void Notified()
    {
        m_target = rate;
        rate = std::max(rate * (1 - m_alpha / 2), LEAST);
        m_alpha = (1 - gain) * m_alpha + gain;
        m_timerCount = m_byteCount = 0;
        m_counted = 0;
        m_alphaTimer.Cancel();
        m_rateTimer.Cancel();
        m_alphaTimer = Simulator::Schedule(NanoSeconds(TIMER_NS), &Sender::Forget, this);
        m_rateTimer = Simulator::Schedule(NanoSeconds(TIMER_NS), &Sender::Recover, this);
    }

    void Forget()
    {
        m_alpha *= 1 - gain;
        m_alphaTimer = Simulator::Schedule(NanoSeconds(TIMER_NS), &Sender::Forget, this);
    }

    void Recover()
    {
        ++m_timerCount;
        Increase();
        m_rateTimer = Simulator::Schedule(NanoSeconds(TIMER_NS), &Sender::Recover, this);
    }

    void Increase()
    {
        if (std::min(m_timerCount, m_byteCount) >= RECOVERIES)
            m_target = std::min(m_target + HYPER, line);
        else if (std::max(m_timerCount, m_byteCount) >= RECOVERIES)
            m_target = std::min(m_target + ADDITIVE, line);
        rate = (rate + m_target) / 2;
    }

    Ptr<Socket> m_socket;
    Time m_next;
    EventId m_waiting, m_alphaTimer, m_rateTimer;
    double m_target = line, m_alpha = 1, m_counted = 0;
    uint32_t m_timerCount = 0, m_byteCount = 0, m_flight = 0;
};

std::vector<std::unique_ptr<Sender>> senders;

void Report(Ptr<QueueDisc> queue, Time step, uint32_t left)
{
    std::cout << queue->GetNBytes();
    for (auto& sender : senders)
        std::cout << " " << sender->rate;
    std::cout << "\n";
    if (left > 1)
        Simulator::Schedule(step, &Report, queue, step, left - 1);
}
} // namespace

int main(int count, char** arguments)
{
    if (count != 14)
    {
        std::cerr << "ns3_dcqcn FLOWS STEPS STEP START PACKET RATE DELAY FROM TO CHANCE GAIN CNP LIMIT\n";
        return 2;
    }
    auto number = [&](int n) { return std::strtod(arguments[n], nullptr); };
    const uint32_t flows = number(1);
    packetBytes = number(5);
    line = number(6);
    gain = number(11);
    cnpInterval = NanoSeconds(number(12));
    limit = number(13);

    NodeContainer nodes(2 * flows + 2); // senders, receivers, routers
    InternetStackHelper().Install(nodes);
    PointToPointHelper links;
    links.SetDeviceAttribute("DataRate", DataRateValue(DataRate(line)));
    links.SetDeviceAttribute("Mtu", UintegerValue(9000));
    links.SetChannelAttribute("Delay", TimeValue(NanoSeconds(0.4 * number(7))));
    Ptr<Node> left = nodes.Get(2 * flows), right = nodes.Get(2 * flows + 1);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    links.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p")); // the queue disc has all others
    NetDeviceContainer middle = links.Install(left, right);
    links.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100000p"));
    links.SetChannelAttribute("Delay", TimeValue(NanoSeconds(0.3 * number(7))));
    TrafficControlHelper red;
    red.SetRootQueueDisc("ns3::RedQueueDisc", "MaxSize", StringValue("33554432B"), "MinTh", DoubleValue(number(8)),
                         "MaxTh", DoubleValue(number(9)), "LInterm", DoubleValue(2 / number(10)), "QW", DoubleValue(1),
                         "MeanPktSize", UintegerValue(packetBytes),
                         "UseEcn", BooleanValue(true), "UseHardDrop", BooleanValue(false), "Gentle", BooleanValue(false),
                         "Wait", BooleanValue(false), "LinkBandwidth", DataRateValue(DataRate(line)));
    Ptr<QueueDisc> queue = red.Install(middle.Get(0)).Get(0);
    addresses.Assign(middle);
    std::vector<std::unique_ptr<Receiver>> receivers;
    std::vector<Ptr<Socket>> sockets;
    for (uint32_t n = 0; n < flows; ++n)
    {
        addresses.NewNetwork();
        addresses.Assign(links.Install(nodes.Get(n), left));
        addresses.NewNetwork();
        Ipv4InterfaceContainer ends = addresses.Assign(links.Install(nodes.Get(flows + n), right));
        Ptr<Socket> to = Socket::CreateSocket(nodes.Get(flows + n), UdpSocketFactory::GetTypeId());
        to->SetAttribute("RcvBufSize", UintegerValue(1 << 24));
        to->Bind(InetSocketAddress(Ipv4Address::GetAny(), 4791));
        receivers.push_back(std::make_unique<Receiver>(to));
        Ptr<Socket> from = Socket::CreateSocket(nodes.Get(n), UdpSocketFactory::GetTypeId());
        from->Bind();
        from->Connect(InetSocketAddress(ends.GetAddress(0), 4791));
        senders.push_back(std::make_unique<Sender>(from));
        Simulator::Schedule(NanoSeconds(n * number(4)), &Sender::Send, senders.back().get());
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    Time step = NanoSeconds(number(3));
    Simulator::Schedule(step, &Report, queue, step, uint32_t(number(2)));
    Simulator::Stop(step * int64_t(number(2)) + NanoSeconds(1));
    Simulator::Run();
    Simulator::Destroy();
    return 0;
}
