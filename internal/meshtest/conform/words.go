package conform

import (
	"fmt"
	"reflect"
	"strings"
)

// The words of a case below its top level. Times in fields that end in _ms are
// milliseconds, in those that end in _s seconds.

// tlsSpec is how one end of a connection does TLS.
type tlsSpec struct {
	Cert          string     `yaml:"cert"`
	ALPN          []string   `yaml:"alpn"`
	SNI           string     `yaml:"sni"`
	Verify        bool       `yaml:"verify"`
	RequireClient bool       `yaml:"require_client"`
	AskClient     bool       `yaml:"ask_client"`
	Min           string     `yaml:"min"`
	Max           string     `yaml:"max"`
	Ciphers       string     `yaml:"ciphers"`
	Curve         string     `yaml:"curve"`
	Pad           int        `yaml:"pad"`
	Hello         *helloSpec `yaml:"hello"`
	Resume        string     `yaml:"resume"`
}

// helloSpec cuts the ClientHello into records and writes.
type helloSpec struct {
	Record  int     `yaml:"record"`
	Bytes   int     `yaml:"bytes"`
	PauseMS float64 `yaml:"pause_ms"`
}

// bodySpec is the part that requests and answers share.
type bodySpec struct {
	Body         *authored  `yaml:"body"`
	BodySize     *int       `yaml:"body_size"`
	Chunks       []authored `yaml:"chunks"`
	Chunked      bool       `yaml:"chunked"`
	Trailers     fieldList  `yaml:"trailers"`
	Headers      fieldList  `yaml:"headers"`
	ChunkDelayMS float64    `yaml:"chunk_delay_ms"`
}

// whole is the body without chunks; ok is false without one.
func (b *bodySpec) whole(folder string) (data []byte, ok bool, err error) {
	if b.BodySize != nil {
		return sized(*b.BodySize), true, nil
	}
	data, err = b.Body.in(folder)
	return data, b.Body != nil, err
}

// backendSpec is one scripted upstream.
type backendSpec struct {
	Proto     string            `yaml:"proto"`
	TLS       *tlsSpec          `yaml:"tls"`
	Respond   *script           `yaml:"respond"`
	Paths     map[string]script `yaml:"paths"`
	RawHead   bool              `yaml:"raw_head"`
	Ends      bool              `yaml:"ends"`
	From      bool              `yaml:"from"`
	Settings  settingList       `yaml:"settings"`
	Auto      *bool             `yaml:"auto"`
	OpenWith  []frameSpec       `yaml:"open_with"`
	Log       []string          `yaml:"log"`
	Parse     string            `yaml:"parse"`
	Syn       bool              `yaml:"syn"`
	Sink      bool              `yaml:"sink"`
	Greet     *authored         `yaml:"greet"`
	Source    *int              `yaml:"source"`
	HalfClose bool              `yaml:"half_close"`

	CloseAfter *int      `yaml:"close_after"`
	ResetAfter *int      `yaml:"reset_after"`
	StallMS    float64   `yaml:"stall_ms"`
	Duplex     bool      `yaml:"duplex"`
	Write      *authored `yaml:"write"`
	AfterRead  bool      `yaml:"after_read"`
	Close      string    `yaml:"close"`
}

// reply is one answer of an h1 or h2 upstream.
type reply struct {
	bodySpec    `yaml:",inline"`
	Status      int         `yaml:"status"`
	Reason      string      `yaml:"reason"`
	Version     string      `yaml:"version"`
	NoLength    bool        `yaml:"no_length"`
	Interim     interimList `yaml:"interim"`
	DelayMS     float64     `yaml:"delay_ms"`
	BodyDelayMS float64     `yaml:"body_delay_ms"`
	Hang        bool        `yaml:"hang"`
	Early       bool        `yaml:"early"`
	Raw         *authored   `yaml:"raw"`
	Close       point       `yaml:"close"`
	Reset       point       `yaml:"reset"`
	RSTStream   string      `yaml:"rst_stream"`
	RSTAt       point       `yaml:"rst_at"`
	GoAway      string      `yaml:"goaway"`
	GRPCStatus  *string     `yaml:"grpc_status"`
	Frames      []frameSpec `yaml:"frames"`

	echo bool
}

// frameSpec is one hand-made HTTP/2 frame.
type frameSpec struct {
	Type      string      `yaml:"type"`
	Flags     frameFlags  `yaml:"flags"`
	Stream    *uint32     `yaml:"stream"`
	Payload   *authored   `yaml:"payload"`
	Headers   fieldList   `yaml:"headers"`
	Settings  settingList `yaml:"settings"`
	Increment *uint32     `yaml:"increment"`
	Code      *string     `yaml:"code"`
	Last      uint32      `yaml:"last"`
	Length    *int        `yaml:"length"`
	PauseMS   float64     `yaml:"pause_ms"`
	Preface   bool        `yaml:"preface"`
	Raw       *authored   `yaml:"raw"`
	Times     int         `yaml:"times"`
}

// dialSpec is where a step connects, and how.
type dialSpec struct {
	Conn        string      `yaml:"conn"`
	To          string      `yaml:"to"`
	Proto       string      `yaml:"proto"`
	TLS         *tlsSpec    `yaml:"tls"`
	Settings    settingList `yaml:"settings"`
	Auto        *bool       `yaml:"auto"`
	ProxyHeader *authored   `yaml:"proxy_header"`
	Address     string      `yaml:"address"`
	From        string      `yaml:"from"`
}

type openStep struct {
	dialSpec `yaml:",inline"`
	WithinS  *float64 `yaml:"within_s"`
}

type httpStep struct {
	dialSpec     `yaml:",inline"`
	bodySpec     `yaml:",inline"`
	Method       string     `yaml:"method"`
	Path         *string    `yaml:"path"`
	Authority    *string    `yaml:"authority"`
	Host         *bool      `yaml:"host"`
	Version      string     `yaml:"version"`
	RawHead      bool       `yaml:"raw_head"`
	TimeoutS     *float64   `yaml:"timeout_s"`
	CancelMS     *float64   `yaml:"cancel_ms"`
	OpenEnded    bool       `yaml:"open_ended"`
	Scheme       string     `yaml:"scheme"`
	Protocol     *string    `yaml:"protocol"`
	PeekS        *float64   `yaml:"peek_s"`
	WaitSettings *bool      `yaml:"wait_settings"`
	Raw          *authored  `yaml:"raw"`
	Parts        []authored `yaml:"parts"`
}

type tcpStep struct {
	To          string    `yaml:"to"`
	Send        *authored `yaml:"send"`
	Half        string    `yaml:"half"` // "true", "after" or empty
	ExpectBytes *int      `yaml:"expect_bytes"`
	TLS         *tlsSpec  `yaml:"tls"`
	WithinS     *float64  `yaml:"within_s"`
	ProxyHeader *authored `yaml:"proxy_header"`
	Address     string    `yaml:"address"`
	From        string    `yaml:"from"`
}

type sendStep struct {
	Conn    string   `yaml:"conn"`
	Raw     authored `yaml:"raw"`
	WithinS *float64 `yaml:"within_s"`
}

type recvStep struct {
	Conn    string   `yaml:"conn"`
	Until   string   `yaml:"until"`
	WithinS *float64 `yaml:"within_s"`
	IdleMS  float64  `yaml:"idle_ms"`
	Stream  uint32   `yaml:"stream"`
	Types   []string `yaml:"types"`
	All     bool     `yaml:"all"`
	Method  string   `yaml:"method"`
	RawHead bool     `yaml:"raw_head"`
}

type closeStep struct {
	Conn string `yaml:"conn"`
	How  string `yaml:"how"`
}

type h2Step struct {
	Conn   string      `yaml:"conn"`
	Frames []frameSpec `yaml:"frames"`
}

type adminStep struct {
	Method  string    `yaml:"method"`
	Path    string    `yaml:"path"`
	Body    *authored `yaml:"body"`
	Lines   string    `yaml:"lines"`
	Pick    []string  `yaml:"pick"`
	WithinS *float64  `yaml:"within_s"`
}

type waitStatStep struct {
	Name    string   `yaml:"name"`
	AtLeast *int     `yaml:"at_least"`
	Equals  *int     `yaml:"equals"`
	WithinS *float64 `yaml:"within_s"`
}

type waitAdminStep struct {
	Path    string    `yaml:"path"`
	Status  int       `yaml:"status"`
	Has     *authored `yaml:"has"`
	WithinS *float64  `yaml:"within_s"`
}

type waitExitStep struct {
	WithinS *float64 `yaml:"within_s"`
}

type writeStep struct {
	File    string   `yaml:"file"`
	Content authored `yaml:"content"`
}

type backendStep struct {
	Name string `yaml:"name"`
	Do   string `yaml:"do"`
	How  string `yaml:"how"`
}

type adsStep struct {
	Push    pushList `yaml:"push"`
	Version string   `yaml:"version"`
	Wait    string   `yaml:"wait"` // "false" after a push, else the type to wait for
	WithinS *float64 `yaml:"within_s"`
	Do      string   `yaml:"do"`
	Times   int      `yaml:"times"`
	Unasked bool     `yaml:"unasked"`
	Resend  bool     `yaml:"resend"`
}

// step is one step: exactly one of its kinds, and what stands around it.
type step struct {
	HTTP      *httpStep      `yaml:"http"`
	Open      *openStep      `yaml:"open"`
	Send      *sendStep      `yaml:"send"`
	Recv      *recvStep      `yaml:"recv"`
	Close     *closeStep     `yaml:"close"`
	H2        *h2Step        `yaml:"h2"`
	TCP       *tcpStep       `yaml:"tcp"`
	Admin     *adminStep     `yaml:"admin"`
	WaitStat  *waitStatStep  `yaml:"wait_stat"`
	WaitAdmin *waitAdminStep `yaml:"wait_admin"`
	WaitExit  *waitExitStep  `yaml:"wait_exit"`
	Write     *writeStep     `yaml:"write"`
	Backend   *backendStep   `yaml:"backend"`
	ADS       *adsStep       `yaml:"ads"`
	Sleep     *float64       `yaml:"sleep"`
	Signal    *string        `yaml:"signal"`
	Join      *string        `yaml:"join"`
	Parallel  []step         `yaml:"parallel"`
	stepFrame `yaml:",inline"`
}

// stepFrame is what may stand around any step.
type stepFrame struct {
	Bg       string            `yaml:"bg"`
	Repeat   int               `yaml:"repeat"`
	By       []string          `yaml:"by"`
	Spread   map[string][2]int `yaml:"spread"`
	TookMS   []float64         `yaml:"took_ms"`
	Keep     []string          `yaml:"keep"`
	Drop     []string          `yaml:"drop"`
	LooseEnd bool              `yaml:"loose_end"`
}

// check says whether the step has exactly one kind.
func (s *step) check() error {
	v, kinds := reflect.ValueOf(s).Elem(), []string(nil)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() != reflect.Struct && !f.IsNil() {
			kinds = append(kinds, v.Type().Field(i).Tag.Get("yaml"))
		}
	}
	if len(kinds) != 1 {
		return fmt.Errorf("a step has one kind, not %d (%s)", len(kinds), strings.Join(kinds, " "))
	}
	for i := range s.Parallel {
		if err := s.Parallel[i].check(); err != nil {
			return fmt.Errorf("parallel %d: %w", i, err)
		}
	}
	return nil
}
