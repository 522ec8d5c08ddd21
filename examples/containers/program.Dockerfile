# An image of your project with Weft: docker build -f program.Dockerfile . in your project, whose files are in /project.
# OWNER/weft stands for the repository of Weft. The same image serves the cards and runs the programs:
#   docker run -v sockets:/run/weft IMAGE weft serve --hosts a,b --folder /run/weft
#   docker run -v sockets:/run/weft -e WEFT_SOCKET=/run/weft/a.sock IMAGE weft-run PROGRAM
FROM debian:12
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    ca-certificates git gcc libc6-dev libibverbs-dev python3-venv && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/weft && /opt/weft/bin/pip install git+https://github.com/OWNER/weft \
    && /opt/weft/bin/python -m weft.driver.ibverbs.install /usr/local
ENV PATH=/opt/weft/bin:$PATH WEFT_BUILD=/tmp/weft
WORKDIR /project
COPY . .
