package runlog

import pb "github.com/pgexec/runtime/proto/pgexec/v1"

// Decoder is what [Read] decodes one record after another with.
type Decoder struct{ decoder }

// Decode returns a record that is good until the next call.
func (d *Decoder) Decode(data []byte) (*pb.Record, error) { return d.decode(data) }
