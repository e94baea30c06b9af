"""Drawing of handwriting for pretraining: texts of archives, writers, pens, fonts, paper and ink of real pages."""
