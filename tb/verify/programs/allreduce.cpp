// Sum over two ranks by gloo's ring algorithm on its ibverbs transport; every element is checked.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gloo/allreduce_ring.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

// Arguments: rank, folder that both ranks share, number of elements.
int main(int, char **argument) {
    const int rank = std::atoi(argument[1]), count = std::atoi(argument[3]);
    gloo::transport::ibverbs::attr attributes{"weft0", 1, 0};
    auto device = gloo::transport::ibverbs::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
    gloo::rendezvous::FileStore store(argument[2]);
    context->connectFullMesh(store, device);
    std::vector<float> values(count);
    for (int i = 0; i < count; i++) values[i] = static_cast<float>((rank + 1) * (i % 1000));
    gloo::AllreduceRing<float> sum(context, {values.data()}, count);
    sum.run();
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += values[i] != static_cast<float>(3 * (i % 1000));
    std::printf("%d sums, %d wrong\n", count, wrong);
    std::fflush(stdout);
    store.set(rank ? "one" : "zero", {1});
    store.wait({rank ? "zero" : "one"});      // both have their sums
    std::_Exit(wrong != 0);                   // gloo's destructors abort if the completion of a send is outstanding
}
