package conformance

import "relay/db/relay"

// A Vector is a signature to check one's own code against.
type Vector struct {
	About     string `json:"about"`
	Secret    string `json:"secret"`
	Body      string `json:"body"`
	Nonce     string `json:"nonce"`
	Timestamp string `json:"timestamp"`
	Signature string `json:"signature"` // Base64 of HMAC-SHA256 over body|nonce|timestamp
}

// Vectors returns the vectors for signing. Their key is an example with the right
// checksum; no relay has issued it.
func Vectors() []Vector {
	const key = "mk_xAy6qRPZf7GxoHrijCLeU5MsO16U6zmbxpVXPpAIUrm42zWul"
	all := []Vector{
		{About: "a message, in UTF-8", Secret: key, Nonce: "n-0004", Timestamp: "2026-01-02T03:04:05Z",
			Body: `{"to":"bob^demo","payload":{"text":"Grüezi"}}`},
		{About: "no body, as of a GET and of a handshake", Secret: key, Nonce: "n-0005", Timestamp: "2026-01-02T03:04:05Z"},
		{About: "a body with bars", Secret: key, Nonce: "n-0006", Timestamp: "2026-01-02T03:04:05Z",
			Body: `{"to":"bob^demo","payload":{"|":"a|b|c"}}`},
		{About: "white space counts: bytes are signed, not JSON", Secret: key, Nonce: "n-0007",
			Timestamp: "2026-01-02T03:04:05Z", Body: " {\r\n\t\"to\": \"bob^demo\", \"payload\": {}}\n"},
		{About: "escapes are not resolved", Secret: key, Nonce: "n-0008", Timestamp: "2026-01-02T03:04:05Z",
			Body: `{"to":"bob^demo","payload":{"text":"Gr\u00fcezi","n":1.50}}`},
		{About: "the timestamp is signed as it was sent", Secret: key, Nonce: "a.b_c~d:e+f/g=h-i",
			Timestamp: "2026-01-02T08:34:05.125+05:30", Body: `{"to":"bob^demo","payload":{}}`},
		{About: "a signing secret of its own", Secret: "ms_an-example-of-a-secret", Nonce: "n-0010",
			Timestamp: "2026-01-02T03:04:05Z", Body: `{"to":"bob^demo","payload":{}}`},
	}
	for i := range all {
		v := &all[i]
		v.Signature = encode(relay.Sign(v.Secret, []byte(v.Body), v.Nonce, v.Timestamp))
	}
	return all
}
