package console_test

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "write the pictures of the documentation to this folder")

// The pictures in README.md and on the page console: go test ./http/console -run Pictures
// -pictures . makes them.
func TestPicturesOfTheDocumentation(t *testing.T) {
	if *pictures == "" {
		t.Skip("-pictures makes them")
	}
	s := mustPlay(t, true, inNeutralFile)
	b := mustOpen(t)
	b.open(s.entry("/"))
	b.await(isLive)
	b.look(1120, 640, false)
	for name, path := range map[string]string{"now": "/", "message": "/message/" + string(s.answered.ID), "conversation": "/conversation/" + string(s.talk)} {
		b.open(s.url + path)
		b.await(isLive)
		if err := os.WriteFile(filepath.Join(*pictures, "console-"+name+".png"), fewColors(t, do(b, chromedp.CaptureScreenshot())), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// fewColors makes a picture of the 256 colors that it has most of, which takes a third of the
// bytes.
func fewColors(t *testing.T, picture []byte) []byte {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.RGBA]int{}
	for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
		for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
			counts[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	var all []color.Color
	for c := range counts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.Color) int { return counts[b.(color.RGBA)] - counts[a.(color.RGBA)] })
	small := image.NewPaletted(full.Bounds(), all[:min(len(all), 256)])
	draw.Draw(small, small.Bounds(), full, full.Bounds().Min, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
