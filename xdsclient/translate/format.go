//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"sluice/internal/config"
)

// argument says what an operator of a format string takes in parentheses.
type argument uint8

const (
	noArgument argument = iota
	mayHave
	mustHave
	headerName   // X or X?Y
	metadataPath // namespace:key:key
	stateKey     // key:MODE:field
)

// format parses a substitution format string. %% is a percent sign; an operator
// that Envoy doesn't know is an error, as there.
func (s scope) format(text string) *config.Format {
	f := &config.Format{}
	lit := 0
	flush := func(end int) {
		if end > lit {
			f.Items = append(f.Items, config.FormatItem{Text: text[lit:end]})
		}
	}
	for i := 0; i < len(text); {
		if text[i] != '%' {
			i++
			continue
		}
		flush(i)
		if strings.HasPrefix(text[i:], "%%") {
			f.Items = append(f.Items, config.FormatItem{Text: "%"})
			i += 2
			lit = i
			continue
		}
		item, n, ok := s.operator(text[i:])
		if !ok {
			return f
		}
		f.Items = append(f.Items, item)
		i += n
		lit = i
	}
	flush(len(text))
	f.Items = joinText(f.Items)
	return f
}

// joinText makes neighbouring literals one, so that Format.Literal works.
func joinText(in []config.FormatItem) []config.FormatItem {
	out := in[:0]
	for _, it := range in {
		if n := len(out); n > 0 && it.Op == "" && out[n-1].Op == "" {
			out[n-1].Text += it.Text
			continue
		}
		out = append(out, it)
	}
	return out
}

// operator parses %NAME(argument):length% at the start of text and says how
// long it is.
func (s scope) operator(text string) (config.FormatItem, int, bool) {
	end := 1
	for end < len(text) && (text[end] == '_' || text[end] >= 'A' && text[end] <= 'Z' || text[end] >= '0' && text[end] <= '9') {
		end++
	}
	it := config.FormatItem{Op: text[1:end]}
	wrong := func() (config.FormatItem, int, bool) {
		s.bad("incorrect configuration: %s. Couldn't find valid command at %q", bounded(text), bounded(text))
		return it, 0, false
	}
	if end == 1 {
		return wrong()
	}
	var arg string
	hasArg := false
	if end < len(text) && text[end] == '(' {
		i := strings.IndexByte(text[end:], ')')
		if i < 0 {
			return wrong()
		}
		arg, hasArg = text[end+1:end+i], true
		end += i + 1
	}
	if end < len(text) && text[end] == ':' {
		d := end + 1
		for d < len(text) && text[d] >= '0' && text[d] <= '9' {
			d++
		}
		n, err := strconv.Atoi(text[end+1 : d])
		if err != nil {
			return wrong()
		}
		if it.Max, end = n, d; n == 0 {
			it.Max = -1
		}
	}
	if end >= len(text) || text[end] != '%' {
		return wrong()
	}
	if !s.argument(&it, arg, hasArg) {
		return it, 0, false
	}
	return it, end + 1, true
}

func bounded(text string) string {
	if len(text) > 80 {
		return text[:80] + "..."
	}
	return text
}

// argument checks and splits what stands in an operator's parentheses.
func (s scope) argument(it *config.FormatItem, arg string, has bool) bool {
	kind, known := operatorKind(it.Op)
	if !known {
		s.bad("not supported field in StreamInfo: %s", it.Op)
		return false
	}
	switch {
	case kind == noArgument && has && arg != "":
		s.bad("%s does not take any parameters", it.Op)
		return false
	case kind > mayHave && arg == "":
		s.bad("%s requires parameters", it.Op)
		return false
	case kind == noArgument && it.Max != 0:
		s.bad("%s does not take length", it.Op)
		return false
	}
	switch kind {
	case headerName:
		return s.headerArgument(it, arg)
	case metadataPath:
		return s.metadataArgument(it, arg)
	default:
		it.Arg = arg
		if it.Op == "COMMON_DURATION" && strings.Count(arg, ":") != 2 && strings.Count(arg, ":") != 1 {
			s.bad("invalid common duration configuration: %s", arg)
			return false
		}
		return true
	}
}

func (s scope) headerArgument(it *config.FormatItem, arg string) bool {
	main, alt, more := strings.Cut(arg, "?")
	if strings.Contains(alt, "?") || more && strings.ContainsAny(alt, " \t") && alt == "" {
		s.bad("%s: more than 1 alternative header specified in token: %s", it.Op, arg)
		return false
	}
	if strings.ContainsAny(arg, "\x00\r\n") {
		s.bad("%s: invalid header configuration: %q contains null or newline", it.Op, arg)
		return false
	}
	it.Arg, it.Alt = strings.ToLower(main), strings.ToLower(alt)
	return true
}

// metadataArgument takes namespace:key:key, the older ["namespace","key"] of
// header values, and for METADATA a source before them.
func (s scope) metadataArgument(it *config.FormatItem, arg string) bool {
	if strings.HasPrefix(arg, "[") {
		var v structpb.ListValue
		if err := v.UnmarshalJSON([]byte(arg)); err != nil || len(v.Values) < 2 {
			s.bad("invalid header configuration: expected format %s([\"namespace\", \"k\", ...]), got %s", it.Op, arg)
			return false
		}
		it.Arg = v.Values[0].GetStringValue()
		for _, k := range v.Values[1:] {
			it.Path = append(it.Path, k.GetStringValue())
		}
		return true
	}
	parts := strings.Split(arg, ":")
	if it.Op == "METADATA" {
		switch parts[0] {
		case "DYNAMIC", "CLUSTER", "ROUTE", "UPSTREAM_HOST", "LISTENER", "LISTENER_FILTER_CHAIN", "VIRTUAL_HOST":
		default:
			s.bad("%s: invalid metadata type %q", it.Op, parts[0])
			return false
		}
		it.Alt, parts = parts[0], parts[1:]
		if len(parts) == 0 {
			parts = []string{""}
		}
	}
	it.Arg, it.Path = parts[0], parts[1:]
	return true
}

// substitution converts a SubstitutionFormatString into text or JSON.
func (s scope) substitution(f *core.SubstitutionFormatString) (*config.Format, *config.JSONFormat) {
	for i, e := range f.GetFormatters() {
		s.index("formatters", i).formatter(e)
	}
	switch x := f.GetFormat().(type) {
	case *core.SubstitutionFormatString_TextFormat:
		text := s.at("text_format").format(x.TextFormat)
		text.OmitEmpty = f.GetOmitEmptyValues()
		return text, nil
	case *core.SubstitutionFormatString_TextFormatSource:
		b, ok := s.at("text_format_source").data(x.TextFormatSource)
		if !ok {
			return nil, nil
		}
		text := s.at("text_format_source").format(string(b))
		text.OmitEmpty = f.GetOmitEmptyValues()
		return text, nil
	case *core.SubstitutionFormatString_JsonFormat:
		j := s.at("json_format").jsonFormat(x.JsonFormat, 0)
		j.SortKeys = f.GetJsonFormatOptions().GetSortProperties()
		j.OmitEmpty = f.GetOmitEmptyValues()
		return nil, j
	}
	s.bad("no format")
	return nil, nil
}

// formatter accepts the command extensions whose operators are always there.
func (s scope) formatter(e *core.TypedExtensionConfig) {
	switch t, ok := s.unwrap(e.GetName(), e.GetTypedConfig()); {
	case !ok:
	case t.name == "envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery",
		t.name == "envoy.extensions.formatter.metadata.v3.Metadata":
	default:
		s.bad("not supported yet: formatter '%s' with type %s", e.GetName(), t.name)
	}
}

// jsonFormat converts a json_format tree. A proto Struct has no order; Envoy
// writes the keys sorted, so they are sorted here.
func (s scope) jsonFormat(st *structpb.Struct, depth int) *config.JSONFormat {
	out := &config.JSONFormat{}
	if depth > 32 {
		s.bad("nested more than 32 levels")
		return out
	}
	out.Keys = sortedKeys(st.GetFields())
	for _, k := range out.Keys {
		out.Values = append(out.Values, s.at(k).jsonValue(st.Fields[k], depth))
	}
	return out
}

func (s scope) jsonValue(v *structpb.Value, depth int) config.JSONValue {
	switch x := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		f := s.format(x.StringValue)
		if len(f.Items) == 1 && f.Items[0].Op != "" {
			f.Items[0].JSON = true
		}
		return config.JSONValue{Format: f}
	case *structpb.Value_StructValue:
		return config.JSONValue{Object: s.jsonFormat(x.StructValue, depth+1)}
	case *structpb.Value_ListValue:
		out := config.JSONValue{List: []config.JSONValue{}}
		if depth > 32 {
			s.bad("nested more than 32 levels")
			return out
		}
		for i, e := range x.ListValue.GetValues() {
			out.List = append(out.List, s.at("["+strconv.Itoa(i)+"]").jsonValue(e, depth+1))
		}
		return out
	}
	return config.JSONValue{Const: valueOf(v), IsVal: true}
}
