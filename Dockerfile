# One image for both containers of an injected pod: istio-init runs `pilot-agent istio-iptables ...`, istio-proxy runs
# `pilot-agent proxy sidecar ...`. The base brings iptables, ip6tables and nft, which the init half executes.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN make build VERSION=$VERSION

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends iptables nftables ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1337 --user-group --no-create-home --shell /usr/sbin/nologin istio-proxy
COPY --from=build /src/bin/proxy /usr/local/bin/pilot-agent
COPY --from=build /src/bin/init /usr/local/bin/sluice-init
WORKDIR /
USER 1337:1337
ENTRYPOINT ["/usr/local/bin/pilot-agent"]
