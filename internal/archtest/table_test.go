package archtest

// row is one line of the import table: what a package may import of ours and of
// others, and the reason that a failure prints. A path that ends in "/*" covers
// the packages below it; "std" alone means the standard library only.
type row struct {
	pkg    string
	ours   []string
	third  []string
	reason string
}

const (
	xsys    = "golang.org/x/sys/"
	xnet    = "golang.org/x/net/"
	grpc    = "google.golang.org/grpc"
	protob  = "google.golang.org/protobuf/"
	genpb   = "google.golang.org/genproto/"
	gcp     = "github.com/envoyproxy/go-control-plane"
	xdsgo   = "github.com/cncf/xds/"
	pgv     = "github.com/envoyproxy/protoc-gen-validate"
	istioPB = "istio.io/api/"
	yaml    = "sigs.k8s.io/yaml"
	prom    = "github.com/prometheus/"
	cobra   = "github.com/spf13/"
	fsn     = "github.com/fsnotify/fsnotify"
	otlp    = "go.opentelemetry.io/proto/otlp/"
	pbwire  = "google.golang.org/protobuf/encoding/protowire"
)

// table is the import table of ARCHITECTURE.md. Arrows: control → config ←
// data; listener → upstream, never back; the data path never imports control.
var table = []row{
	{"internal/config", nil, nil, "the waist: if it imported anything, both sides would share it"},
	{"internal/httpmsg", nil, nil, "engines share a message head, not a driver"},
	{"internal/worker", nil, []string{xsys}, "the loop knows no protocol"},
	{"internal/h1", []string{"internal/httpmsg"}, []string{xnet}, "engines do no I/O"},
	{"internal/h2", []string{"internal/httpmsg", "internal/h2/hpack"}, []string{xnet}, "engines do no I/O"},
	{"internal/h2/hpack", []string{"internal/httpmsg"}, []string{xnet}, "a coder of bytes"},
	{"internal/nameserver", []string{"internal/config"}, []string{"golang.org/x/net/"}, "DNS of a pod; no worker waits for it"},
	{"internal/gcm", nil, []string{xsys}, "a cipher: bytes in, bytes out; x/sys says what the processor has"},
	{"internal/rsakey", nil, []string{xsys}, "signatures: a digest in, bytes out; x/sys says what the processor has"},
	{"internal/jwks", []string{"internal/config"}, nil, "text in, keys out; keys come with the configuration and from where it points"},
	{"internal/tlsconn", []string{"internal/gcm", "internal/rsakey", "internal/worker", "internal/identity", "internal/config"}, []string{xsys}, "records and handshakes; who we are comes from identity"},
	{"internal/telemetry", []string{"internal/config", "internal/httpmsg"}, []string{prom, pbwire}, "both halves of the data path report through it"},
	{"internal/identity", []string{"internal/config", "internal/telemetry"}, []string{grpc, protob, genpb, fsn, istioPB, yaml}, "certificates belong to no side"},
	{"redirect", nil, []string{xsys, "github.com/vishvananda/", "github.com/coreos/go-iptables/"}, "all we ask of the kernel's rules, and nothing of ours"},
	{"redirect/command", []string{"redirect"}, []string{cobra}, "istio-init's command line, offered by both binaries"},
	{"listener/sniff", nil, nil, "bytes in, an answer out"},
	{"listener/route", []string{"internal/config", "internal/httpmsg"}, nil, "pure: a request in, a route out"},
	{"upstream/balance", []string{"internal/config"}, nil, "pure: hosts in, a pick out"},
	{"xdsclient/link", []string{"internal/config"}, nil, "pure: joins by name"},
	{"xdsclient/translate", []string{"internal/config", "internal/jwks"}, []string{gcp, xdsgo, pgv, protob, genpb, istioPB, yaml, grpc, otlp}, "protobufs end here"},
	{"xdsclient", []string{"internal/config", "xdsclient/translate", "xdsclient/link", "internal/identity", "internal/telemetry"}, []string{grpc, gcp, xdsgo, protob, genpb, istioPB, yaml}, "control path"},
	{"upstream", []string{"internal/config", "internal/identity", "internal/telemetry", "internal/worker", "internal/tlsconn", "internal/httpmsg", "internal/h1", "internal/h2", "upstream/*"}, []string{xsys}, "never back to listener"},
	{"upstream/pool", []string{"internal/config", "internal/identity", "internal/telemetry", "internal/worker", "internal/tlsconn", "internal/httpmsg", "internal/h1", "internal/h2", "upstream/*"}, []string{xsys}, "never back to listener"},
	{"upstream/call", []string{"internal/config", "internal/httpmsg", "internal/worker", "upstream", "upstream/pool"}, nil, "requests of our own, by the way all others take"},
	{"upstream/export", []string{"internal/worker", "upstream/call"}, nil, "batches; what is in them others write"},
	{"listener/downstream", []string{"internal/config", "internal/tlsconn", "internal/worker"}, nil, "what a terminal is given: data and one interface"},
	{"listener/tcpproxy", []string{"internal/config", "internal/telemetry", "internal/tlsconn", "internal/worker", "listener/downstream"}, []string{xsys}, "the only relay; relay joins it to upstream (telemetry: what a handshake told, in its record)"},
	{"listener/relay", []string{"internal/config", "internal/httpmsg", "internal/telemetry", "internal/tlsconn", "internal/worker", "listener/downstream", "listener/tcpproxy", "listener/filter/*", "upstream", "upstream/*"}, nil, "tcpproxy's ways to clusters and reports"},
	{"listener/filter", []string{"internal/config", "internal/httpmsg", "internal/telemetry", "internal/worker", "listener/downstream", "listener/route", "upstream/call"}, []string{pbwire}, "what filters and their terminal agree on; a filter that asks a cluster does so by a call"},
	{"listener/httpproxy", []string{"internal/config", "internal/h1", "internal/h2", "internal/httpmsg", "internal/telemetry", "internal/tlsconn", "internal/worker", "listener/downstream", "listener/filter", "listener/relay", "listener/route", "upstream", "upstream/*"}, nil, "terminal: requests"},
	{"listener", []string{"internal/config", "internal/tlsconn", "internal/worker", "listener/*"}, []string{xsys}, "from a socket to a chosen chain; httpproxy is injected"},
	{"internal/admin", []string{"internal/config", "internal/telemetry"}, []string{prom, grpc}, "reads what others tell it; cmd wires"},
	{"cmd/init", []string{"redirect", "redirect/*"}, []string{cobra}, "the init container must stay small"},
}

// dataPath lists packages that may never reach these modules, however deep.
var dataPath = []string{
	"internal/config", "internal/httpmsg", "internal/worker", "internal/h1", "internal/h2", "internal/gcm", "internal/rsakey", "internal/tlsconn",
	"listener", "listener/downstream", "listener/sniff", "listener/route", "listener/tcpproxy", "listener/httpproxy",
	"upstream", "upstream/balance", "upstream/pool", "redirect", "redirect/command", "cmd/init",
}

// forbiddenOnDataPath must not be reachable from dataPath. Of protobuf only the
// coding of single fields (protowire) may be: it knows no message.
var forbiddenOnDataPath = []string{
	"net/http", grpc, gcp, protob + "proto", protob + "reflect", protob + "runtime", "sluice/xdsclient", "sluice/xdsclient/translate",
}
