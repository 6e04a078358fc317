package llm

// imageTokens is about what providers charge for an image of usual size.
const imageTokens = 1600

// bytesToTokens is the rule of thumb that four bytes make a token. It is 10–30 %
// off for prose and code; for scripts other than Latin it counts too few.
func bytesToTokens(n int) int64 { return int64(n+3) / 4 }

// EstimateTokens is about how many tokens a request takes, without asking anybody.
func EstimateTokens(r *Request) int64 {
	n := len(r.System)
	var images int64
	for _, t := range r.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	for _, m := range r.Messages {
		n += len(m.Raw) + len(m.Name)
		for _, p := range m.Parts {
			n += len(p.Text)
			if p.Image != nil {
				images++
			}
		}
	}
	return bytesToTokens(n) + images*imageTokens
}
