package llm

import "bytes"

// joinElement appends an element to a list. Some servers stream a list of
// blocks of text or reasoning in pieces, each with the type and index of the block
// it belongs to: those pieces become one block, as the server expects it back.
func (v *value) joinElement(e *value) error {
	next, err := parseObject(e.raw)
	if err != nil || !isPiece(next) {
		v.list = append(v.list, e)
		return nil
	}
	if last := v.lastPiece(); last != nil && samePiece(last, next) {
		return last.joinPiece(next)
	}
	v.list = append(v.list, &value{obj: next})
	return nil
}

func isPiece(o *object) bool {
	switch o.text("type") {
	case "text", "reasoning.text", "reasoning.summary":
		return true
	default:
		return false
	}
}

func samePiece(a, b *object) bool {
	return a.text("type") == b.text("type") && bytes.Equal(a.raw("index"), b.raw("index"))
}

// lastPiece is the last element if it is one that grows.
func (v *value) lastPiece() *object {
	if len(v.list) == 0 {
		return nil
	}
	return v.list[len(v.list)-1].obj
}

// joinPiece lets the texts grow; what else a piece brings replaces what was there.
func (o *object) joinPiece(next *object) error {
	for _, name := range next.names {
		switch {
		case next.empty(name):
		case name == "text" || name == "summary":
			if err := o.join(name, next.raw(name)); err != nil {
				return err
			}
		default:
			o.put(name, next.values[name])
		}
	}
	return nil
}
