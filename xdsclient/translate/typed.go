package translate

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode"

	udpa "github.com/cncf/xds/go/udpa/type/v1"
	xdstype "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	urlPrefix       = "type.googleapis.com/"
	typedStructUDPA = "udpa.type.v1.TypedStruct"
	typedStructXDS  = "xds.type.v3.TypedStruct"
)

// typed is an Any with its wrapping taken off: name is the message's full name
// without the URL's host. Exactly one of value and fields counts: a TypedStruct
// carries a message in JSON's shape.
type typed struct {
	name   string
	value  []byte
	fields *structpb.Struct
}

func shortURL(url string) string {
	if i := strings.LastIndexByte(url, '/'); i >= 0 {
		return url[i+1:]
	}
	return url
}

// unwrap takes a off its TypedStruct. Nothing at all is an error, as in Envoy,
// which finds extensions by type URL only.
func (s scope) unwrap(name string, a *anypb.Any) (typed, bool) {
	if a == nil || a.TypeUrl == "" {
		s.bad("no implementation for '%s' with type URL: ''", name)
		return typed{}, false
	}
	t := typed{name: shortURL(a.TypeUrl), value: a.Value}
	switch t.name {
	case typedStructUDPA:
		var m udpa.TypedStruct
		if err := proto.Unmarshal(a.Value, &m); err != nil {
			s.bad("TypedStruct: %v", err)
			return t, false
		}
		t = typed{name: shortURL(m.TypeUrl), fields: m.GetValue()}
	case typedStructXDS:
		var m xdstype.TypedStruct
		if err := proto.Unmarshal(a.Value, &m); err != nil {
			s.bad("TypedStruct: %v", err)
			return t, false
		}
		t = typed{name: shortURL(m.TypeUrl), fields: m.GetValue()}
	default:
		return t, true
	}
	if t.fields == nil {
		t.fields = &structpb.Struct{}
	}
	return t, true
}

// decode parses t into m and runs the generated checks.
func (s scope) decode(t typed, m proto.Message) bool {
	if string(m.ProtoReflect().Descriptor().FullName()) != t.name {
		s.bad("type %s is not %s", t.name, m.ProtoReflect().Descriptor().FullName())
		return false
	}
	if t.fields != nil {
		return s.decodeFields(t, m)
	}
	if err := proto.Unmarshal(t.value, m); err != nil {
		s.bad("%s: %v", t.name, err)
		return false
	}
	return s.check(m)
}

func (s scope) decodeFields(t typed, m proto.Message) bool {
	b, err := t.fields.MarshalJSON()
	if err == nil {
		b, err = wrapUnknown(b)
	}
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
	}
	if err != nil {
		s.bad("%s: %v", t.name, err)
		return false
	}
	return s.check(m)
}

// unpack is unwrap and decode for an Any of one known type.
func (s scope) unpack(name string, a *anypb.Any, m proto.Message) bool {
	t, ok := s.unwrap(name, a)
	return ok && s.decode(t, m)
}

// check runs the constraints generated from the .proto files, which are Envoy's
// own, and notes each failure with its path.
func (s scope) check(m proto.Message) bool {
	v, ok := m.(interface{ ValidateAll() error })
	if !ok {
		return true
	}
	err := v.ValidateAll()
	if err == nil {
		return true
	}
	s.generated(err, 0)
	return false
}

// generated flattens protoc-gen-validate's nested errors.
func (s scope) generated(err error, depth int) {
	var many interface{ AllErrors() []error }
	if depth < 64 && errors.As(err, &many) {
		for _, e := range many.AllErrors() {
			s.generated(e, depth+1)
		}
		return
	}
	one, ok := err.(interface {
		Field() string
		Reason() string
		Cause() error
	})
	if !ok {
		s.bad("%v", err)
		return
	}
	at := s.at(snake(one.Field()))
	if cause := one.Cause(); cause != nil && depth < 64 {
		at.generated(cause, depth+1)
		return
	}
	at.bad("%s", one.Reason())
}

// snake turns a Go field name, maybe with an index, into the proto's.
func snake(field string) string {
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 && !strings.HasSuffix(b.String(), "_") && b.String()[b.Len()-1] != '[' {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.ReplaceAll(b.String(), "__", "_")
}

// Hash tells versions of a resource apart: eight bytes at a time, as a mesh has
// many megabytes of them. Bytes that differ within one word never collide.
func Hash(b []byte) uint64 {
	const odd = 0x9E3779B97F4A7C15
	h := uint64(len(b)) * odd
	for ; len(b) >= 8; b = b[8:] {
		h = (h ^ binary.LittleEndian.Uint64(b)) * odd
		h ^= h >> 29
	}
	for _, c := range b {
		h = (h ^ uint64(c)) * odd
		h ^= h >> 29
	}
	return h
}

func hashMessage(m proto.Message) uint64 {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return 0
	}
	return Hash(b)
}
