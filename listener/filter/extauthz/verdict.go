package extauthz

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice/internal/config"
	"sluice/internal/telemetry"
)

// readVerdict reads an envoy.service.auth.v3.CheckResponse. Bytes that aren't one
// make the check fail; a field we don't know is passed over.
func readVerdict(b []byte) outcome {
	code := uint64(0)
	okay, no := outcome{kind: allowed}, outcome{kind: denied, status: 403}
	var outer config.Struct
	broken := false
	valid := fields(b, "bbbbb", func(n protowire.Number, v []byte, _ uint64) bool {
		switch n {
		case 1: // google.rpc.Status
			return fields(v, "v", func(_ protowire.Number, _ []byte, i uint64) bool {
				code = i
				return true
			})
		case 2:
			return no.readDenied(v)
		case 3:
			return okay.readAllowed(v)
		case 4:
			var ok bool
			outer, ok = telemetry.ParseStruct(v)
			return ok
		case 5: // the service says that it failed
			broken = true
		}
		return true
	})
	out := okay
	if code != 0 {
		out = no
	}
	if !valid || broken {
		return outcome{kind: failed}
	}
	if out.metadata == nil {
		out.metadata = outer
	}
	return out
}

// readDenied reads a DeniedHttpResponse.
func (o *outcome) readDenied(b []byte) bool {
	return fields(b, "bbb", func(n protowire.Number, v []byte, _ uint64) bool {
		switch n {
		case 1:
			return fields(v, "v", func(_ protowire.Number, _ []byte, i uint64) bool {
				o.status = int(i)
				return i >= 200 && i < 600
			})
		case 2:
			e, ok := readOption(v)
			if e.how != appendIfExists { // there is no response yet that has one, says Envoy
				o.client = append(o.client, edit{e.name, e.value, appendLine})
			}
			return ok
		case 3:
			o.body = string(v)
		}
		return true
	})
}

// readAllowed reads an OkHttpResponse.
func (o *outcome) readAllowed(b []byte) bool {
	return fields(b, "-bb-bbbb", func(n protowire.Number, v []byte, _ uint64) (ok bool) {
		var e edit
		switch n {
		case 2:
			if e, ok = readOption(v); e.how != appendIfExists {
				e.how = overwrite // Envoy reads no append_action here
			}
			o.request = append(o.request, e)
			return ok
		case 3:
			o.metadata, ok = telemetry.ParseStruct(v)
			return ok
		case 5:
			o.remove = append(o.remove, strings.ToLower(string(v)))
		case 6:
			if e, ok = readOption(v); e.how == appendIfExists {
				e.how = appendLine
			}
			o.client = append(o.client, e)
			return ok
		case 7, 8: // of the query
			return o.readQuery(n, v)
		}
		return true
	})
}

func (o *outcome) readQuery(n protowire.Number, b []byte) bool {
	if n == 8 {
		o.query = append(o.query, config.QueryMutation{Remove: string(b)})
		return true
	}
	name, value, ok := readPair(b)
	o.query = append(o.query, config.QueryMutation{Name: name, Action: config.OverwriteOrAdd, Value: &config.Format{Items: []config.FormatItem{{Text: value}}}})
	return ok
}

// readOption reads a HeaderValueOption: append_action counts where append isn't set.
func readOption(b []byte) (e edit, ok bool) {
	said, action := false, uint64(0)
	ok = fields(b, "bbv", func(n protowire.Number, v []byte, i uint64) (ok bool) {
		switch n {
		case 1:
			e.name, e.value, ok = readPair(v)
			return ok
		case 2: // BoolValue
			said, e.how = true, overwrite
			return fields(v, "v", func(_ protowire.Number, _ []byte, i uint64) bool {
				if i != 0 {
					e.how = appendIfExists
				}
				return true
			})
		}
		action = i
		return i <= uint64(config.OverwriteIfExists)
	})
	e.name = strings.ToLower(e.name)
	switch {
	case said:
	case action == 0:
		e.how = appendLine
	case action == uint64(config.AddIfAbsent):
		e.how = addIfAbsent
	case action == uint64(config.OverwriteIfExists):
		e.how = overwriteIfExists
	}
	return e, ok
}

// readPair reads a HeaderValue or a QueryParameter. A raw value is one too.
func readPair(b []byte) (name, value string, ok bool) {
	ok = fields(b, "bbb", func(n protowire.Number, v []byte, _ uint64) bool {
		if n == 1 {
			name = string(v)
		} else if len(v) > 0 {
			value = string(v)
		}
		return true
	})
	return name, value, ok
}

// fields visits the fields of a message that wire knows: a letter for each number
// from 1, b for bytes, v for a varint. A known field of another wire type, and
// bytes that aren't fields, are errors.
func fields(b []byte, wire string, visit func(n protowire.Number, v []byte, i uint64) bool) bool {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return false
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, typ, b); size < 0 {
			return false
		}
		value := b[:size]
		b = b[size:]
		if int(n) > len(wire) || wire[n-1] == '-' {
			continue
		}
		if !visitField(n, typ, value, wire[n-1], visit) {
			return false
		}
	}
	return true
}

func visitField(n protowire.Number, typ protowire.Type, value []byte, want byte, visit func(protowire.Number, []byte, uint64) bool) bool {
	switch {
	case want == 'b' && typ == protowire.BytesType:
		v, _ := protowire.ConsumeBytes(value)
		return visit(n, v, 0)
	case want == 'v' && typ == protowire.VarintType:
		i, _ := protowire.ConsumeVarint(value)
		return visit(n, nil, i)
	}
	return false
}
