# The main job in an image: docker build -f examples/containers/sim.Dockerfile -t weft-sim . && docker run weft-sim
FROM debian:12
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    g++ make python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /weft
COPY . .
# The first run builds simulator and report; later runs start at once. Settings: docker run weft-sim make sim LOSS=0.1
RUN rm -rf .venv sim_build && make sim
CMD ["make", "sim"]
