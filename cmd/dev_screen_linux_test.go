package cmd_test

func init() {
	showings["serve"] = append(showings["serve"], showing{args: "--dev --addr 127.0.0.1:0 --db $DIR/$LEGAL-dev.db", until: "Ctrl-C"})
}
