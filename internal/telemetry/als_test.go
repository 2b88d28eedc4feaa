//lint:file-ignore SA1019 deprecated fields are still sent

package telemetry

import (
	"net/netip"
	"testing"
	"time"

	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/protobuf/proto"

	"sluice/internal/config"
)

func alsMessage(t *testing.T, l *config.GRPCLog, r *Record) *als.StreamAccessLogsMessage {
	t.Helper()
	var m als.StreamAccessLogsMessage
	w := NewFormatter(nil)
	n := &config.Node{ID: "n", Cluster: "c", Zone: "z", Metadata: config.Struct{"k": 1.0}}
	if err := proto.Unmarshal(ALSMessage(l, ALSIdentifier(l, n), w.ALS(w.ALS(nil, l, r), l, r)), &m); err != nil {
		t.Fatal(err)
	}
	if id := m.GetIdentifier(); id.GetLogName() != "log" || id.GetNode().GetId() != "n" || id.GetNode().GetLocality().GetZone() != "z" {
		t.Errorf("identifier %v", id)
	}
	return &m
}

func alsRecord() *Record {
	r := otelRecord()
	r.LogType, r.UpstreamHost, r.Cluster, r.Route = "DownstreamEnd", "10.0.0.9:443", "up", "route"
	r.RequestEnd, r.BytesIn, r.BytesOut, r.Attempts = r.Start+5e6, 3, 4, 2
	r.Conn.TLS = &TLS{Version: "TLSv1.3", PeerURI: []string{"spiffe://a"}, PeerSubject: "CN=a"}
	for _, f := range []Flag{UF, UAEX, DR, DO} {
		r.Flags.Set(f)
	}
	return r
}

func TestEntryOfARequest(t *testing.T) {
	l, r := &config.GRPCLog{LogName: "log", RequestHeaders: []string{"x-one", "x-none", "x-bad"}, RespHeaders: []string{"x-resp"}}, alsRecord()
	list := alsMessage(t, l, r).GetHttpLogs().GetLogEntry()
	if len(list) != 2 {
		t.Fatalf("%d entries", len(list))
	}
	one := list[1]
	q, a, c := one.GetRequest(), one.GetResponse(), one.GetCommonProperties()
	for name, ok := range map[string]bool{
		"request":  q.GetRequestMethod().String() == "GET" && q.GetPath() == "/a/b?q=1" && q.GetAuthority() == "svc" && q.GetRequestBodyBytes() == 3,
		"headers":  len(q.GetRequestHeaders()) == 2 && q.GetRequestHeaders()["x-bad"] == "a!b" && a.GetResponseHeaders()["x-resp"] == `say "hi"`,
		"response": a.GetResponseCode().GetValue() == 200 && a.GetResponseCodeDetails() == "via_upstream" && a.GetResponseBodyBytes() == 4,
		"protocol": one.GetProtocolVersion().String() == "HTTP11",
		"address":  c.GetUpstreamRemoteAddress().GetSocketAddress().GetPortValue() == 443 && c.GetDownstreamRemoteAddress().GetSocketAddress().GetAddress() == "10.0.0.2",
		"times": c.GetStartTime().AsTime().Equal(r.Wall) && c.GetDuration().AsDuration() == 12*time.Millisecond &&
			c.GetTimeToLastRxByte().AsDuration() == 5*time.Millisecond && c.GetTimeToFirstUpstreamTxByte() == nil,
		"flags": c.GetResponseFlags().GetUpstreamConnectionFailure() && c.GetResponseFlags().GetUnauthorizedDetails().GetReason() == 1 &&
			c.GetResponseFlags().GetDownstreamRemoteReset(),
		"metadata": c.GetMetadata().GetFilterMetadata()["m"].GetFields()["s"].GetStringValue() == "text",
		"tls": c.GetTlsProperties().GetTlsVersion().String() == "TLSv1_3" &&
			c.GetTlsProperties().GetPeerCertificateProperties().GetSubjectAltName()[0].GetUri() == "spiffe://a",
		"kind": c.GetAccessLogType().String() == "DownstreamEnd" && !c.GetIntermediateLogEntry(),
	} {
		if !ok {
			t.Errorf("%s: %v", name, one)
		}
	}
}

func TestEntryOfAConnection(t *testing.T) {
	r := &Record{Conn: &Conn{Local: netip.MustParseAddrPort("[::1]:80"), LocalPipe: "/pipe"}, TCP: true, LogType: "TcpPeriodic", Wall: time.Unix(1, 2), BytesIn: 5, BytesOut: 6}
	one := alsMessage(t, &config.GRPCLog{LogName: "log", TCP: true}, r).GetTcpLogs().GetLogEntry()[0]
	c := one.GetCommonProperties()
	if one.GetConnectionProperties().GetReceivedBytes() != 5 || one.GetConnectionProperties().GetSentBytes() != 6 || !c.GetIntermediateLogEntry() ||
		c.GetDownstreamLocalAddress().GetPipe().GetPath() != "/pipe" || c.GetAccessLogType().String() != "TcpPeriodic" {
		t.Errorf("entry %v", one)
	}
}

func TestEntriesDoNotAllocate(t *testing.T) {
	l, w, r := &config.GRPCLog{RequestHeaders: []string{"x-one"}}, NewFormatter(nil), alsRecord()
	r.Dynamic = nil
	buf := w.ALS(nil, l, r)
	if n := testing.AllocsPerRun(100, func() { buf = w.ALS(buf[:0], l, r) }); n != 0 {
		t.Errorf("%v allocations an entry", n)
	}
}
