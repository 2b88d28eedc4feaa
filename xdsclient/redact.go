package xdsclient

import (
	"github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

const redacted = "[redacted]"

// redact takes the secrets out of a message: every field that its .proto file
// marks as sensitive, inside of Anys too. It changes m.
func redact(m protoreflect.Message) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		redactAny(a)
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if sensitive(f) {
			erase(m, f, v)
			return true
		}
		eachMessage(f, v, redact)
		return true
	})
}

func redactAny(a *anypb.Any) {
	inner, err := a.UnmarshalNew()
	if err != nil {
		return // a type we don't know can't be shown either
	}
	redact(inner.ProtoReflect())
	if b, err := proto.Marshal(inner); err == nil {
		a.Value = b
	}
}

func sensitive(f protoreflect.FieldDescriptor) bool {
	o := f.Options()
	if o == nil || !proto.HasExtension(o, annotations.E_Sensitive) {
		return false
	}
	v, ok := proto.GetExtension(o, annotations.E_Sensitive).(bool)
	return ok && v
}

// eachMessage calls do for the messages in a field's value.
func eachMessage(f protoreflect.FieldDescriptor, v protoreflect.Value, do func(protoreflect.Message)) {
	switch {
	case f.IsMap():
		if f.MapValue().Message() != nil {
			v.Map().Range(func(_ protoreflect.MapKey, x protoreflect.Value) bool { do(x.Message()); return true })
		}
	case f.Message() == nil:
	case f.IsList():
		for i := range v.List().Len() {
			do(v.List().Get(i).Message())
		}
	default:
		do(v.Message())
	}
}

// erase replaces what a sensitive field holds; of a message every text is.
func erase(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsList() || f.IsMap():
		if f.Message() == nil {
			m.Clear(f)
			return
		}
		eachMessage(f, v, eraseAll)
	case f.Message() != nil:
		eraseAll(v.Message())
	case f.Kind() == protoreflect.StringKind:
		m.Set(f, protoreflect.ValueOfString(redacted))
	case f.Kind() == protoreflect.BytesKind:
		m.Set(f, protoreflect.ValueOfBytes([]byte(redacted)))
	default:
		m.Clear(f)
	}
}

func eraseAll(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool { erase(m, f, v); return true })
}
