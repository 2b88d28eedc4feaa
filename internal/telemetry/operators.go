package telemetry

import (
	"net/netip"
	"sort"
	"strconv"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

// op appends the value of one operator. The switches below are one list of
// operators, cut by subject to keep each readable.
func (w *Formatter) op(dst []byte, it *config.FormatItem, r *Record) ([]byte, kind) {
	switch it.Op {
	case "REQ", "REQ_WITHOUT_QUERY", "RESP", "TRAILER", "PATH", "QUERY_PARAM":
		return headerOp(dst, it, r)
	case "RESPONSE_CODE":
		return strconv.AppendInt(dst, int64(r.Code), 10), number
	case "RESPONSE_FLAGS", "RESPONSE_FLAGS_LONG":
		if r.Flags.Empty() {
			return append(dst, '-'), text
		}
		return r.Flags.Append(dst, it.Op == "RESPONSE_FLAGS_LONG"), text
	case "RESPONSE_CODE_DETAILS":
		if r.Details == "" && r.Flags.Has(NFCF) {
			return dst, text // Envoy's reply has details there, and they are empty
		}
		return appendUnderscored(dst, r.Details)
	case "PROTOCOL":
		return str(dst, r.Protocol.String())
	case "CONNECTION_TERMINATION_DETAILS":
		return str(dst, r.Conn.Termination)
	case "UPSTREAM_TRANSPORT_FAILURE_REASON":
		return appendUnderscored(dst, r.UpstreamFailure)
	case "DOWNSTREAM_TRANSPORT_FAILURE_REASON":
		return appendUnderscored(dst, r.Conn.Failure)
	case "ROUTE_NAME":
		return str(dst, r.Route)
	case "VIRTUAL_HOST_NAME":
		return str(dst, r.VirtualHost)
	case "VIRTUAL_CLUSTER_NAME":
		return str(dst, r.VirtualCluster)
	case "FILTER_CHAIN_NAME":
		return str(dst, r.Conn.Chain)
	case "REQUESTED_SERVER_NAME":
		return str(dst, r.Conn.SNI)
	case "ACCESS_LOG_TYPE":
		return str(dst, r.LogType)
	case "HOSTNAME":
		return str(dst, w.Hostname)
	case "ENVIRONMENT":
		if v := w.environment(it.Arg); v != "" {
			return str(dst, v)
		}
		return append(dst, '-'), text // a constant to Envoy, never a missing value
	case "GRPC_STATUS", "GRPC_STATUS_NUMBER":
		return grpcOp(dst, it, r)
	case "LOCAL_REPLY_BODY":
		return append(dst, r.LocalBody...), text
	}
	if out, k, ok := metadataOp(dst, it, r); ok {
		return out, k
	}
	if strings.HasPrefix(it.Op, "UPSTREAM_") {
		return upstreamOp(dst, it, r)
	}
	return connOp(dst, it, r)
}

func unless(absent bool, k kind) kind {
	if absent {
		return missing
	}
	return k
}

func str(dst []byte, s string) ([]byte, kind) { return append(dst, s...), unless(s == "", text) }

func count(dst []byte, n uint64) ([]byte, kind) { return strconv.AppendUint(dst, n, 10), number }

// appendUnderscored replaces spaces, as Envoy does in details and reasons.
func appendUnderscored(dst []byte, s string) ([]byte, kind) {
	start := len(dst)
	dst = append(dst, s...)
	for i := start; i < len(dst); i++ {
		if dst[i] == ' ' {
			dst[i] = '_'
		}
	}
	return dst, unless(s == "", text)
}

func headerOp(dst []byte, it *config.FormatItem, r *Record) ([]byte, kind) {
	switch it.Op {
	case "RESP":
		return header(dst, r.Response, it.Arg, it.Alt)
	case "TRAILER":
		return header(dst, r.Trailers, it.Arg, it.Alt)
	case "REQ_WITHOUT_QUERY":
		start := len(dst)
		out, k := header(dst, r.Request, it.Arg, it.Alt)
		return cutQuery(out, start), k
	case "QUERY_PARAM":
		if r.Request == nil {
			return dst, missing
		}
		return queryParam(dst, r.Request.Path(), it.Arg)
	case "PATH":
		return pathOp(dst, it, r)
	}
	return header(dst, r.Request, it.Arg, it.Alt)
}

// pathOp is %PATH(WQ|NQ:PATH|ORIG|ORIG_OR_PATH)%.
func pathOp(dst []byte, it *config.FormatItem, r *Record) ([]byte, kind) {
	query, which, _ := strings.Cut(it.Arg, ":")
	if which == "" {
		which = it.Alt
	}
	name, alt := "x-envoy-original-path", ":path"
	switch which {
	case "PATH":
		name, alt = ":path", ""
	case "ORIG":
		alt = ""
	}
	start := len(dst)
	out, k := header(dst, r.Request, name, alt)
	if query == "NQ" {
		out = cutQuery(out, start)
	}
	return out, k
}

func cutQuery(b []byte, start int) []byte {
	for i := start; i < len(b); i++ {
		if b[i] == '?' {
			return b[:i]
		}
	}
	return b
}

func queryParam(dst, path []byte, name string) ([]byte, kind) {
	_, query, _ := strings.Cut(string(path), "?")
	for part := range strings.SplitSeq(query, "&") {
		if k, v, _ := strings.Cut(part, "="); k == name {
			return append(dst, v...), text
		}
	}
	return dst, missing
}

// Header looks a header or pseudo header up.
func Header(h *httpmsg.Head, name string) (value []byte, ok bool) {
	if h == nil {
		return nil, false
	}
	switch name {
	case ":method":
		value = h.Method()
	case ":path":
		value = h.Path()
	case ":authority", "host":
		return h.Authority(), h.HasAuthority()
	case ":scheme":
		value = h.Scheme()
	case ":protocol":
		value = h.Protocol()
	case ":status":
		return strconv.AppendInt(nil, int64(h.Status), 10), h.Status != 0
	default:
		return h.Value(name)
	}
	return value, len(value) > 0
}

func header(dst []byte, h *httpmsg.Head, name, alt string) ([]byte, kind) {
	if h == nil {
		return dst, missing
	}
	if v, ok := Header(h, name); ok {
		return append(dst, v...), text
	}
	if alt != "" {
		if v, ok := Header(h, alt); ok {
			return append(dst, v...), text
		}
	}
	return dst, missing
}

func metadataOp(dst []byte, it *config.FormatItem, r *Record) ([]byte, kind, bool) {
	var m config.Metadata
	path, ns := it.Path, it.Arg
	switch it.Op {
	case "DYNAMIC_METADATA":
		m = r.Dynamic
	case "CLUSTER_METADATA":
		m = r.ClusterMetadata
	case "UPSTREAM_METADATA":
		return hostMetadata(dst, ns, path, r)
	case "METADATA":
		switch it.Alt {
		case "DYNAMIC":
			m = r.Dynamic
		case "CLUSTER":
			m = r.ClusterMetadata
		case "ROUTE":
			m = r.RouteMetadata
		case "VIRTUAL_HOST":
			m = r.VirtualHostMetadata
		case "UPSTREAM_HOST":
			return hostMetadata(dst, ns, path, r)
		}
	case "FILTER_STATE":
		if r.MessageState && it.Arg == "envoy.filters.http.grpc_stats" {
			return appendMessages(dst, r), text, true
		}
		v := r.FilterState[it.Arg]
		out, k := str(dst, v)
		return out, k, true
	default:
		return dst, missing, false
	}
	if ns == "" && len(path) > 0 {
		ns, path = path[0], path[1:]
	}
	return metadataValue(dst, m, ns, path)
}

// appendMessages writes the filter state of grpc_stats as Envoy's JSON has it:
// counts of nothing are left out.
func appendMessages(dst []byte, r *Record) []byte {
	dst = append(dst, '{')
	if r.MessagesIn > 0 {
		dst = append(dst, `"requestMessageCount":"`...)
		dst = append(strconv.AppendUint(dst, r.MessagesIn, 10), '"')
	}
	if r.MessagesOut > 0 {
		if r.MessagesIn > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `"responseMessageCount":"`...)
		dst = append(strconv.AppendUint(dst, r.MessagesOut, 10), '"')
	}
	return append(dst, '}')
}

// hostMetadata reads an endpoint's metadata; envoy.lb is kept apart.
func hostMetadata(dst []byte, ns string, path []string, r *Record) ([]byte, kind, bool) {
	if ns == "" && len(path) > 0 {
		ns, path = path[0], path[1:]
	}
	if ns == "envoy.lb" {
		return metadataValue(dst, config.Metadata{ns: r.HostLB}, ns, path)
	}
	return metadataValue(dst, r.HostMetadata, ns, path)
}

func metadataValue(dst []byte, m config.Metadata, ns string, path []string) ([]byte, kind, bool) {
	v, ok := m.Lookup(ns, path...)
	if !ok || v == nil {
		return dst, missing, true
	}
	if s, isText := v.(string); isText {
		return append(dst, s...), text, true
	}
	return AppendValue(dst, v), raw, true
}

func upstreamOp(dst []byte, it *config.FormatItem, r *Record) ([]byte, kind) {
	switch it.Op {
	case "UPSTREAM_HOST":
		return str(dst, r.UpstreamHost)
	case "UPSTREAM_REMOTE_ADDRESS":
		return str(dst, r.UpstreamRemote)
	case "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT":
		return str(dst, withoutPort(r.UpstreamRemote))
	case "UPSTREAM_REMOTE_PORT":
		a, err := netip.ParseAddrPort(r.UpstreamRemote)
		return strconv.AppendUint(dst, uint64(a.Port()), 10), unless(err != nil, number)
	case "UPSTREAM_HOST_NAME":
		if r.UpstreamHostname != "" {
			return str(dst, r.UpstreamHostname)
		}
		return str(dst, r.UpstreamHost)
	case "UPSTREAM_HOST_NAME_WITHOUT_PORT":
		if r.UpstreamHostname != "" {
			return str(dst, withoutPort(r.UpstreamHostname))
		}
		return str(dst, withoutPort(r.UpstreamHost))
	case "UPSTREAM_CLUSTER":
		return str(dst, r.Cluster)
	case "UPSTREAM_CLUSTER_RAW":
		return str(dst, r.ClusterRaw)
	case "UPSTREAM_LOCAL_ADDRESS":
		return addrPort(dst, r.UpstreamLocal)
	case "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT":
		return addr(dst, r.UpstreamLocal)
	case "UPSTREAM_LOCAL_PORT":
		return strconv.AppendUint(dst, uint64(r.UpstreamLocal.Port()), 10), unless(!r.UpstreamLocal.IsValid(), number)
	case "UPSTREAM_PROTOCOL":
		return str(dst, r.UpstreamProtocol.String())
	case "UPSTREAM_REQUEST_ATTEMPT_COUNT":
		return count(dst, uint64(r.Attempts))
	case "UPSTREAM_CONNECTION_ID":
		return strconv.AppendUint(dst, r.UpstreamConn, 10), unless(r.UpstreamConn == 0, number)
	case "UPSTREAM_WIRE_BYTES_SENT":
		return count(dst, r.UpWireOut)
	case "UPSTREAM_WIRE_BYTES_RECEIVED":
		return count(dst, r.UpWireIn)
	case "UPSTREAM_HEADER_BYTES_SENT":
		return count(dst, r.UpHeadOut)
	case "UPSTREAM_HEADER_BYTES_RECEIVED":
		return count(dst, r.UpHeadIn)
	case "UPSTREAM_DETECTED_CLOSE_TYPE":
		return str(dst, r.CloseUp)
	case "UPSTREAM_CLOSE_REASON", "UPSTREAM_LOCAL_CLOSE_REASON":
		return dst, missing
	}
	return tlsOp(dst, strings.TrimPrefix(it.Op, "UPSTREAM_"), r.UpstreamTLS)
}

func connOp(dst []byte, it *config.FormatItem, r *Record) ([]byte, kind) {
	c := r.Conn
	switch it.Op {
	case "DOWNSTREAM_REMOTE_ADDRESS":
		return addrPort(dst, r.remote())
	case "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT":
		return addr(dst, r.remote())
	case "DOWNSTREAM_REMOTE_PORT":
		return count(dst, uint64(r.remote().Port()))
	case "DOWNSTREAM_DIRECT_REMOTE_ADDRESS":
		return addrPort(dst, c.Direct)
	case "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT":
		return addr(dst, c.Direct)
	case "DOWNSTREAM_DIRECT_REMOTE_PORT":
		return count(dst, uint64(c.Direct.Port()))
	case "DOWNSTREAM_LOCAL_ADDRESS":
		if c.LocalPipe != "" {
			return str(dst, c.LocalPipe)
		}
		return addrPort(dst, c.Local)
	case "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT":
		return addr(dst, c.Local)
	case "DOWNSTREAM_LOCAL_PORT":
		return count(dst, uint64(c.Local.Port()))
	case "DOWNSTREAM_DETECTED_CLOSE_TYPE":
		return str(dst, r.CloseDown)
	case "DOWNSTREAM_LOCAL_CLOSE_REASON":
		return str(dst, c.LocalReason)
	case "CONNECTION_ID":
		return count(dst, c.ID)
	case "STREAM_ID":
		if !r.TCP { // the stream id of a request is its request id
			if r.Request == nil || !r.Request.Has(httpmsg.XRequestID) {
				return dst, missing
			}
			return append(dst, r.Request.Get(httpmsg.XRequestID)...), text
		}
		if r.StreamID == [16]byte{} {
			return dst, missing
		}
		return AppendUUID(dst, r.StreamID), text
	case "BYTES_RECEIVED":
		return count(dst, r.BytesIn)
	case "BYTES_SENT":
		return count(dst, r.BytesOut)
	case "DOWNSTREAM_WIRE_BYTES_RECEIVED":
		return count(dst, r.DownWireIn)
	case "DOWNSTREAM_WIRE_BYTES_SENT":
		return count(dst, r.DownWireOut)
	case "DOWNSTREAM_HEADER_BYTES_RECEIVED":
		return count(dst, r.DownHeadIn)
	case "DOWNSTREAM_HEADER_BYTES_SENT":
		return count(dst, r.DownHeadOut)
	case "TRACE_ID":
		return str(dst, r.TraceID)
	case "SPAN_ID":
		return str(dst, r.SpanID)
	}
	if out, k, ok := timeOp(dst, it, r); ok {
		return out, k
	}
	if rest, ok := strings.CutPrefix(it.Op, "DOWNSTREAM_"); ok {
		return tlsOp(dst, rest, c.TLS)
	}
	return dst, missing
}

func (r *Record) remote() netip.AddrPort {
	if r.Remote.IsValid() {
		return r.Remote
	}
	return r.Conn.Remote
}

func tlsOp(dst []byte, op string, t *TLS) ([]byte, kind) {
	if t == nil {
		return dst, missing
	}
	switch op {
	case "TLS_VERSION":
		return str(dst, t.Version)
	case "TLS_CIPHER":
		return str(dst, t.Cipher)
	case "TLS_SESSION_ID":
		return str(dst, t.SessionID)
	case "PEER_URI_SAN":
		return str(dst, strings.Join(t.PeerURI, ","))
	case "PEER_DNS_SAN":
		return str(dst, strings.Join(t.PeerDNS, ","))
	case "LOCAL_URI_SAN":
		return str(dst, strings.Join(t.LocalURI, ","))
	case "LOCAL_DNS_SAN":
		return str(dst, strings.Join(t.LocalDNS, ","))
	case "PEER_SUBJECT":
		return str(dst, t.PeerSubject)
	case "PEER_ISSUER":
		return str(dst, t.PeerIssuer)
	case "LOCAL_SUBJECT":
		return str(dst, t.LocalSubject)
	case "PEER_FINGERPRINT_256":
		return str(dst, t.PeerSum)
	case "PEER_SERIAL":
		return str(dst, t.PeerSerial)
	}
	return dst, missing
}

func addrPort(dst []byte, a netip.AddrPort) ([]byte, kind) {
	if !a.IsValid() {
		return dst, missing
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).AppendTo(dst), text
}

func addr(dst []byte, a netip.AddrPort) ([]byte, kind) {
	if !a.IsValid() {
		return dst, missing
	}
	return a.Addr().Unmap().AppendTo(dst), text
}

func withoutPort(s string) string {
	if a, err := netip.ParseAddrPort(s); err == nil {
		return a.Addr().String()
	}
	if i := strings.LastIndexByte(s, ':'); i > 0 {
		return s[:i]
	}
	return s
}

// AppendUUID appends the usual form of a UUID.
func AppendUUID(dst []byte, u [16]byte) []byte {
	for i, c := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

func sortedKeys(s config.Struct) []string {
	keys := make([]string, 0, len(s))
	for k := range s {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
