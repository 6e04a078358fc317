package pgtest

// Lease is what a test program does first: it joins or starts the shared server.
func Lease() (url string, keeper int, err error) {
	a, err := lease()
	if err != nil {
		return "", 0, err
	}
	return a.URL, a.PID, nil
}
